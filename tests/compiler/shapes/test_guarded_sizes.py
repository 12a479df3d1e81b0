"""Sizes at which a program means nothing, or something else than its samples show, are rejected."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.shapes.symbols import SymbolTable
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel

_V, _I, _S = "tensor<?xf32>", "tensor<i32>", "tensor<1xi32>"


class _Program:
    """Lines over vectors of open sizes, the numbers of elements of which are ``%n0``, ``%n1``, ..."""

    def __init__(self, count: int) -> None:
        self.arguments = ", ".join(f"%x{place}: {_V}" for place in range(count))
        self.lines = [
            f"%n{place} = stablehlo.get_dimension_size %x{place}, dim = 0 : ({_V}) -> {_I}"
            for place in range(count)
        ]

    def each(self, name: str, op: str, left: str, right: str) -> None:
        """A number of two others; digits are constants."""
        for number in (left, right):
            if number.isdigit() and f"%c{number} =" not in "\n".join(self.lines):
                self.lines.append(f"%c{number} = stablehlo.constant dense<{number}> : {_I}")
        left, right = (f"c{side}" if side.isdigit() else side for side in (left, right))
        self.lines.append(f"%{name} = stablehlo.{op} %{left}, %{right} : {_I}")

    def shape(self, name: str) -> str:
        self.lines.append(f"%{name}s = stablehlo.reshape %{name} : ({_I}) -> {_S}")
        return f"%{name}s"

    def iota(self, name: str, size: str) -> None:
        self.lines.append(f"%{name} = stablehlo.dynamic_iota {self.shape(size)}, dim = 0 : ({_S}) -> {_V}")

    def joined(self, name: str, *parts: str) -> None:
        names, kinds = ", ".join(f"%{part}" for part in parts), ", ".join([_V] * len(parts))
        self.lines.append(f"%{name} = stablehlo.concatenate {names}, dim = 0 : ({kinds}) -> {_V}")

    def padded(self, name: str, source: str, high: str) -> None:
        self.each(f"{name}no", "subtract", high, high)
        none = self.shape(f"{name}no")
        self.lines.append(f"%{name}f = stablehlo.constant dense<0.0> : tensor<f32>")
        operands = f"%{source}, %{name}f, {none}, {self.shape(high)}, {none}"
        kinds = f"({_V}, tensor<f32>, {_S}, {_S}, {_S}) -> {_V}"
        self.lines.append(f"%{name} = stablehlo.dynamic_pad {operands} : {kinds}")

    def kernel(self, *results: str) -> Kernel:
        kinds, names = ", ".join([_V] * len(results)), ", ".join(f"%{name}" for name in results)
        body = "\n".join(self.lines)
        text = f"func.func @main({self.arguments}) -> ({kinds}) {{\n{body}\nreturn {names} : {kinds}\n}}"
        form = canonicalize(text.encode(), "stablehlo")
        options = CompileOptions(opt_level=1)
        return Kernel(compile_spec(form.spec_text, form.arg_spec, "x86-64-v2", options, lambda _: None))


def _count(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32)


def test_what_is_divided_is_not_below_zero() -> None:
    program = _Program(1)
    program.each("d", "subtract", "n0", "5")
    program.each("q", "divide", "d", "2")
    program.each("s", "add", "q", "3")
    program.iota("r", "s")
    kernel = program.kernel("r")
    assert kernel(_count(9))[0].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="sizes"):
        kernel(_count(2))


def test_sizes_in_between_are_not_below_zero() -> None:
    program = _Program(1)
    program.each("d", "subtract", "n0", "5")
    program.iota("i", "d")
    program.joined("r", "i", "x0")
    kernel = program.kernel("r")
    assert kernel(_count(6))[0].tolist() == [0, 0, 1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="sizes"):
        kernel(_count(4))


def test_slices_end_behind_their_start() -> None:
    program = _Program(2)
    program.each("one", "add", "1", "0")
    start, limit, step = program.shape("n1"), program.shape("n0"), program.shape("one")
    program.lines.append(
        f"%i = stablehlo.real_dynamic_slice %x0, {start}, {limit}, {step} : ({_V}, {_S}, {_S}, {_S}) -> {_V}"
    )
    program.joined("r", "i", "x1")
    kernel = program.kernel("r")
    assert kernel(_count(5), _count(3))[0].tolist() == [3, 4, 0, 1, 2]
    with pytest.raises(RuntimeError, match="sizes"):
        kernel(_count(1), _count(3))


def test_a_division_by_an_open_size_of_zero_does_not_trap() -> None:
    program = _Program(2)
    program.each("q", "divide", "n0", "n1")
    program.each("e", "subtract", "q", "q")
    program.iota("i", "q")
    program.padded("r", "x0", "e")
    try:
        kernel = program.kernel("r", "i")
    except UnsupportedOp:
        return
    assert len(kernel(_count(6), _count(3))[1]) == 2


def test_sizes_that_agree_at_samples_only_are_told_apart() -> None:
    """``n // 128 + 1`` is ``ceil(n / 128)`` but where 128 divides ``n``."""
    program = _Program(1)
    program.each("f", "divide", "n0", "128")
    program.each("up", "add", "n0", "127")
    program.each("c", "divide", "up", "128")
    program.each("one", "add", "1", "0")
    program.each("more", "add", "f", "one")
    program.iota("i", "more")
    program.iota("j", "c")
    program.padded("p", "x0", "one")
    try:
        kernel = program.kernel("i", "j", "p")
    except UnsupportedOp:
        return
    for size in (0, 1, 127, 128, 129, 256):
        assert [len(array) for array in kernel(_count(size))[:2]] == [size // 128 + 1, -(-size // 128)]


def test_the_range_of_a_product_of_numbers_below_zero() -> None:
    symbols = SymbolTable(3, {}, {})
    few = symbols.size(symbols.apply("min", symbols.apply("-", "s0", 5), "s1"))
    name = symbols.formula(few)
    assert symbols.range(name)[0] == -5
    assert symbols.range(symbols.apply("*", name, "s2"))[0] < -1_000_000
    assert symbols.range(symbols.apply("*", name, name))[0] <= 0
    sign = symbols.formula(symbols.size(symbols.apply("max", symbols.apply("min", name, 1), -1)))
    assert symbols.range(symbols.apply("*", sign, sign)) in ((-1, 1), (0, 1))


def test_a_choice_of_sizes_may_be_below_zero() -> None:
    program = _Program(2)
    program.each("d", "subtract", "n0", "5")
    program.each("e", "subtract", "n1", "3")
    program.each("m", "minimum", "d", "e")
    program.padded("r", "x0", "m")
    kernel = program.kernel("r")
    assert len(kernel(_count(9), _count(6))[0]) == 12
    with pytest.raises(RuntimeError, match="sizes"):
        kernel(_count(4), _count(6))
