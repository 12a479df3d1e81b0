"""Grouped kernels against NumPy and against the same program with a launch for every nest."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.lower.loops import planned_launches
from kcache_compiler.lower.loops.segment import BLOCK
from kcache_compiler.schedule.groups import apart
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import NUMPY, Kernel, kernel_of, threaded_host

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i32", "i8", "ui16", "i64")
SIZES = (0, 1, 2, 3, 5, 16, 17, 33, 64, 130)
UNARY = {"abs": np.abs, "negate": np.negative, "exponential": np.exp, "tanh": np.tanh}
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum}
#: Combiner, its start, and NumPy's reduction.
REDUCTIONS = {"add": ("0", np.sum), "maximum": ("-100", np.max)}
RTOL = {"f32": 2e-4, "f64": 1e-9, "f16": 5e-2, "bf16": 3e-1}


@dataclass
class Value:
    name: str
    axes: tuple[int, ...]
    array: np.ndarray


@dataclass
class Writer:
    """A random DAG of elementwise operations, reductions and broadcasts over one space of axes."""

    rng: random.Random
    element: str
    sizes: tuple[int, ...]
    lines: list[str] = field(default_factory=list[str])
    values: list[Value] = field(default_factory=list[Value])

    def type(self, axes: tuple[int, ...]) -> str:
        return f"tensor<{''.join(f'{self.sizes[axis]}x' for axis in axes)}{self.element}>"

    def emit(self, text: str, axes: tuple[int, ...], array: np.ndarray) -> Value:
        value = Value(f"%v{len(self.values)}", axes, array.astype(NUMPY[self.element]))
        self.lines.append(f"{value.name} = {text}")
        self.values.append(value)
        return value

    @property
    def all_axes(self) -> tuple[int, ...]:
        return tuple(range(len(self.sizes)))

    def step(self) -> None:
        value = self.rng.choice(self.values[-6:])
        kind = self.rng.choice(("unary", "binary", "binary", "reduce", "broadcast", "transpose"))
        if kind == "unary":
            names = list(UNARY) if self.element in FLOATS else ["negate", "abs"]
            self.unary(self.rng.choice(names if not self.element.startswith("ui") else ["negate"]), value)
        elif kind == "binary":
            other = self.rng.choice([candidate for candidate in self.values if candidate.axes == value.axes])
            self.binary(self.rng.choice(list(BINARY)), value, other)
        elif kind == "reduce" and value.axes:
            self.reduce(self.rng.choice(list(REDUCTIONS)), value)
        elif kind == "broadcast" and value.axes != self.all_axes:
            self.broadcast(value)
        elif kind == "transpose" and len(value.axes) > 1:
            self.transpose(value)

    def unary(self, name: str, value: Value) -> None:
        kind = self.type(value.axes)
        source = value
        if name == "exponential":  # of what is never large
            self.emit(f"stablehlo.tanh {value.name} : {kind}", value.axes, self.wide(np.tanh, value))
            source = self.values[-1]
        self.emit(f"stablehlo.{name} {source.name} : {kind}", value.axes, self.wide(UNARY[name], source))

    def wide(self, function: Any, *values: Value) -> np.ndarray:
        """NumPy's result, computed in f32 where the type is narrower."""
        narrow = self.element in ("f16", "bf16")
        return function(*(value.array.astype(np.float32) if narrow else value.array for value in values))

    def binary(self, name: str, a: Value, b: Value) -> None:
        array = self.wide(BINARY[name], a, b)
        self.emit(f"stablehlo.{name} {a.name}, {b.name} : {self.type(a.axes)}", a.axes, array)

    def reduced(self, value: Value) -> tuple[int, ...]:
        return (self.rng.choice(value.axes),)

    def reduce(self, name: str, value: Value) -> None:
        axes = self.reduced(value)
        positions = tuple(value.axes.index(axis) for axis in axes)
        kept = tuple(axis for axis in value.axes if axis not in axes)
        start, function = REDUCTIONS[name]
        start = "0" if self.element.startswith("ui") else start
        literal = f"dense<{start}{'.0' if self.element in FLOATS else ''}> : tensor<{self.element}>"
        constant = f"%c{len(self.lines)}"
        self.lines.append(f"{constant} = stablehlo.constant {literal}")
        text = f"""stablehlo.reduce({value.name} init: {constant}) applies stablehlo.{name}
          across dimensions = {list(positions)} : ({self.type(value.axes)}, tensor<{self.element}>)
          -> {self.type(kept)}"""
        array = value.array
        wide = array.astype(np.float64) if self.element in FLOATS else array
        first = np.asarray(float(start) if self.element in FLOATS else int(start), wide.dtype)
        if name == "add":
            result = np.add.reduce(wide, axis=positions, dtype=wide.dtype)
        else:
            result = np.maximum.reduce(wide, axis=positions, initial=first)
        assert function is not None
        self.emit(text, kept, result)

    def broadcast(self, value: Value) -> None:
        dims = ", ".join(map(str, value.axes))
        text = f"""stablehlo.broadcast_in_dim {value.name}, dims = [{dims}]
          : ({self.type(value.axes)}) -> {self.type(self.all_axes)}"""
        shape = [self.sizes[axis] if axis in value.axes else 1 for axis in self.all_axes]
        moved = np.transpose(value.array, np.argsort(value.axes)) if value.axes else value.array
        self.emit(text, self.all_axes, np.broadcast_to(moved.reshape(shape), self.sizes))

    def transpose(self, value: Value) -> None:
        order = list(range(len(value.axes)))
        self.rng.shuffle(order)
        axes = tuple(value.axes[position] for position in order)
        text = f"""stablehlo.transpose {value.name}, dims = [{", ".join(map(str, order))}]
          : ({self.type(value.axes)}) -> {self.type(axes)}"""
        self.emit(text, axes, np.transpose(value.array, order))


@dataclass
class Program:
    text: str
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]
    element: str
    #: The largest number of all values: what roundings of 16 bits cancel down to is a share of it.
    largest: float = 1.0


def random_program(seed: int, element: str, write: type[Writer] = Writer) -> Program:
    rng = random.Random(seed)
    sizes = tuple(rng.choice(SIZES) for _ in range(rng.choice((1, 2, 2, 2, 3))))
    sizes = tuple(min(size, 17) for size in sizes) if len(sizes) == 3 else sizes
    writer = write(rng, element, sizes)
    values = np.random.default_rng(seed)
    for axes in (writer.all_axes, writer.all_axes, writer.all_axes[-1:]):
        array = values.uniform(-2, 2, [sizes[axis] for axis in axes])
        writer.values.append(Value(f"%v{len(writer.values)}", axes, array.astype(NUMPY[element])))
    inputs = list(writer.values)
    for _ in range(rng.randrange(3, 16)):
        writer.step()
    results = writer.values[-3:]
    arguments = ", ".join(f"{value.name}: {writer.type(value.axes)}" for value in inputs)
    returned = ", ".join(value.name for value in results)
    types = ", ".join(writer.type(value.axes) for value in results)
    body = "\n".join(writer.lines)
    text = f"func.func @main({arguments}) -> ({types}) {{\n{body}\nreturn {returned} : {types}\n}}"
    finite = [np.abs(value.array[np.isfinite(value.array)].astype(np.float64)) for value in writer.values]
    largest = max(float(np.max(magnitudes, initial=1.0)) for magnitudes in finite)
    return Program(
        text, [value.array for value in inputs], [value.array for value in results], element, largest
    )


def build(program: Program, numerics: str) -> Kernel:
    options = CompileOptions(numerics=numerics, opt_level=2)
    target = host_target().isa
    return Kernel(lower_module(program.text, len(program.inputs), target, options, lambda _: None))


def agree(program: Program, results: tuple[np.ndarray, ...]) -> None:
    for wanted, got in zip(program.outputs, results, strict=True):
        if program.element not in FLOATS:
            np.testing.assert_array_equal(got, wanted)
            continue
        tolerance = RTOL[program.element]
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        narrow = program.element in ("f16", "bf16")
        scale = program.largest if narrow else np.max(np.abs(b[np.isfinite(b)]), initial=1.0)
        settled = np.isfinite(a) & np.isfinite(b)
        assert np.all(np.abs(a[settled] - b[settled]) <= tolerance * scale)


def same_numbers(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> None:
    """As ``same_bits``, but for the bits of NaN: a sum of two NaNs is either."""
    for left, other in zip(a, b, strict=True):
        none, neither = left != left, other != other
        np.testing.assert_array_equal(none, neither)
        same_bits((left[~none],), (other[~neither],))


def same_bits(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> None:
    for left, other in zip(a, b, strict=True):
        assert left.tobytes() == other.tobytes()


def check(seed: int, element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with np.errstate(all="ignore"):
        program = random_program(seed, element)
        grouped = build(program, "strict")
        strict = grouped(*program.inputs)
        agree(program, strict)
        same_bits(strict, grouped(*program.inputs, host=threaded_host()))
        agree(program, build(program, "default")(*program.inputs))
        with monkeypatch.context() as patch:
            patch.setattr(planned_launches, "partition", apart)
            same_bits(strict, build(program, "strict")(*program.inputs))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("element", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed: int, element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(seed, element, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("element", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("seed", range(100, 160))
def test_more_random_programs(seed: int, element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(seed, element, monkeypatch)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("element", ["f32", "f64", "i8", "bf16"])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_transposition_in_tiles(target: str, element: str) -> None:
    """One kernel for all sizes: whole tiles, edges, nothing, and slices for threads."""
    if target > host_target().isa:
        pytest.skip("this machine does not have the instructions")
    dynamic, turned = f"tensor<?x?x3x{element}>", f"tensor<3x?x?x{element}>"
    kernel = kernel_of(
        f"""func.func @main(%x: {dynamic}) -> {turned} {{
          %y = stablehlo.transpose %x, dims = [2, 1, 0] : ({dynamic}) -> {turned}
          return %y : {turned}
        }}""",
        target,
    )
    for rows, columns in ((0, 4), (1, 1), (16, 16), (5, 40), (33, 31), (64, 17)):
        x = np.arange(rows * columns * 3).reshape(rows, columns, 3).astype(NUMPY[element])
        for host in (None, threaded_host()):
            np.testing.assert_array_equal(kernel(x, host=host)[0], x.transpose(2, 1, 0))


def test_what_is_cheap_is_computed_again_instead_of_stored() -> None:
    kernel = kernel_of("""
      func.func @main(%x: tensor<9x33xf32>, %m: tensor<33xf32>) -> (tensor<33xf32>, tensor<9x33xf32>) {
        %z = stablehlo.constant dense<0.0> : tensor<f32>
        %b = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<33xf32>) -> tensor<9x33xf32>
        %d = stablehlo.subtract %x, %b : tensor<9x33xf32>
        %q = stablehlo.multiply %d, %d : tensor<9x33xf32>
        %s = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [0]
          : (tensor<9x33xf32>, tensor<f32>) -> tensor<33xf32>
        %t = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<33xf32>) -> tensor<9x33xf32>
        %o = stablehlo.divide %d, %t : tensor<9x33xf32>
        return %s, %o : tensor<33xf32>, tensor<9x33xf32>
      }""")
    assert kernel.interface.workspace == "0"
    x, m = np.arange(297, dtype="f4").reshape(9, 33), np.arange(33, dtype="f4")
    total, quotient = kernel(x, m)
    np.testing.assert_allclose(total, ((x - m) ** 2).sum(0), rtol=1e-6)
    np.testing.assert_allclose(quotient, (x - m) / ((x - m) ** 2).sum(0), rtol=1e-6)


def test_long_sums_stay_near_the_sum() -> None:
    """Blocks bound the error: one accumulator of f32 would be off by percents here."""
    size = 3_000_001
    text = f"""func.func @main(%x: tensor<{size}xf32>) -> tensor<f32> {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
        : (tensor<{size}xf32>, tensor<f32>) -> tensor<f32>
      return %r : tensor<f32>
    }}"""
    x = np.full(size, 0.1, np.float32)
    exact = float(np.sum(x, dtype=np.float64))
    bound = (BLOCK + size / BLOCK) * 2.0**-24
    assert abs(kernel_of(text)(x)[0] - exact) <= bound * exact
    program = Program(text, [x], [], "f32")
    assert abs(build(program, "strict")(x)[0] - exact) > bound * exact


def test_a_maximum_answers_nan_wherever_it_stands() -> None:
    text = """func.func @main(%x: tensor<8x70xf32>) -> tensor<8xf32> {
      %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %r = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1]
        : (tensor<8x70xf32>, tensor<f32>) -> tensor<8xf32>
      return %r : tensor<8xf32>
    }"""
    x = np.random.default_rng(0).standard_normal((8, 70)).astype(np.float32)
    for row, column in enumerate((0, 1, 15, 16, 63, 64, 69)):
        x[row, column] = np.nan
    np.testing.assert_array_equal(kernel_of(text, host_target().isa)(x)[0], x.max(1))


def test_a_row_is_divided_within_two_units_of_the_last_place() -> None:
    text = """func.func @main(%x: tensor<64x130xf32>, %y: tensor<64xf32>) -> tensor<64x130xf32> {
      %b = stablehlo.broadcast_in_dim %y, dims = [0] : (tensor<64xf32>) -> tensor<64x130xf32>
      %r = stablehlo.divide %x, %b : tensor<64x130xf32>
      return %r : tensor<64x130xf32>
    }"""
    values = np.random.default_rng(0)
    x, y = values.uniform(1, 2, (64, 130)).astype("f4"), values.uniform(1, 2, 64).astype("f4")
    program = Program(text, [x, y], [], "f32")
    np.testing.assert_array_equal(build(program, "strict")(x, y)[0], x / y[:, None])
    np.testing.assert_array_max_ulp(build(program, "default")(x, y)[0], x / y[:, None], 2)
