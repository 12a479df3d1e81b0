"""Kernels inside of kernels for open sizes: operations that repeat are compiled once, at the same samples."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.chains.programs import chain
from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.subkernels import dynamic_subkernels, outline
from kcache_compiler.types import CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel, threaded_host

Array = np.ndarray[Any, Any]
SIZES = (0, 1, 2, 7, 64, 1009)
LARGE = 5003
#: This many equal operations become a subkernel here; the first test uses ``outline.MIN_EQUAL_FUSED``.
MIN_EQUAL_FUSED = 32


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_subkernels, "MIN_EQUAL_FUSED", MIN_EQUAL_FUSED)


def _compiled(text: str) -> CompiledKernel:
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    return compile_spec(canonical.spec_text, canonical.arg_spec, host_target().isa, options, lambda _: None)


def _calls(kernel: Kernel) -> int:
    """How often a kernel inside of it is entered."""
    text = kernel.compiled.artifacts["llvm"].decode()
    return sum("call void @kcache_part_" in line for line in text.splitlines())


def _chain(kind: str, count: int) -> str:
    """In f64, where sums of windows stay finite."""
    return chain(kind, count).replace("f32", "f64")


def _others(random: np.random.Generator) -> list[Any]:
    """What chains are given beside the first value: a kernel that keeps sums of rows, among others."""
    taps = random.uniform(0.5, 1.5, (3, 8, 8))
    w = random.uniform(-1, 1, (8, 8))
    return [w, taps / taps.sum((0, 1)), np.arange(8, dtype=np.int32), np.int32(0), np.int32(1)]


@pytest.mark.parametrize(
    ("kind", "each"),
    [
        ("reduce_window ?", 1),
        pytest.param("dynamic_conv ?", 1, marks=pytest.mark.long),
        pytest.param("sort ?", 2, marks=pytest.mark.long),
    ],
)
def test_a_chain_of_parts_has_the_bits_of_shorter_ones_without(
    kind: str, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorts are along both axes in turn: two parts."""
    monkeypatch.setattr(dynamic_subkernels, "MIN_EQUAL_FUSED", outline.MIN_EQUAL_FUSED)
    random = np.random.default_rng(7)
    count = each * outline.MIN_EQUAL_FUSED
    short, long = (Kernel(_compiled(_chain(kind, number))) for number in (count // 2, count))
    assert [_calls(kernel) for kernel in (short, long)] == [0, count]
    others = _others(random)
    for size in (*SIZES, LARGE):
        x = random.uniform(0, 1, (size, 8))
        expected = short(short(x, *others)[0], *others)[0]
        result = long(x, *others)[0]
        assert np.isfinite(result).all()
        assert size == 0 or result.any()
        assert result.tobytes() == expected.tobytes(), size
        host = threaded_host(3)
        assert long(x, *others, host=host)[0].tobytes() == expected.tobytes(), size
        assert host.calls or size < LARGE


@pytest.mark.long
def test_one_more_takes_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_subkernels, "MIN_EQUAL_FUSED", outline.MIN_EQUAL_FUSED)
    more = outline.MIN_EQUAL_FUSED
    few, many = (_compiled(_chain("reduce_window ?", count)) for count in (more, 2 * more))
    assert len(many.interface.launches) - len(few.interface.launches) == more
    assert len(many.artifacts["so"]) - len(few.artifacts["so"]) <= more * 128 + 4096  # a page


def _sort(name: str, source: str, kind: str, axis: int) -> str:
    element = f"tensor<{kind.rpartition('x')[2]}"
    return (
        f'%{name} = "stablehlo.sort"(%{source}) <{{dimension = {axis} : i64, is_stable = true}}> ({{\n'
        f"^bb0(%p: {element}, %q: {element}):\n"
        f"%c = stablehlo.compare LT, %p, %q : ({element}, {element}) -> tensor<i1>\n"
        f"stablehlo.return %c : tensor<i1>\n}}) : ({kind}) -> {kind}"
    )


_M = "tensor<?x?xf32>"


@cache
def _turned(count: int) -> Kernel:
    """Sorts of a matrix of two open sizes and of its transposition in turn, negated in between."""
    lines = [
        f"%t{n} = stablehlo.transpose %v{n}, dims = [1, 0] : ({_M}) -> {_M}\n"
        f"{_sort(f's{n}', f't{n}', _M, 0)}\n"
        f"%v{n + 1} = stablehlo.negate %s{n} : {_M}"
        for n in range(count)
    ]
    return Kernel(
        _compiled(
            "\n".join([f"func.func @main(%v0: {_M}) -> {_M} {{", *lines, f"return %v{count} : {_M}\n}}"])
        )
    )


def _numpy_turned(x: Array, count: int) -> Array:
    for _ in range(count):
        x = -np.sort(x.T, axis=0)
    return x


@pytest.mark.sampled(9)
@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (1, 1), (1, 9), (7, 13), (13, 7), (64, 3), (331, 257)])
def test_parts_of_two_symbols_between_neighbors(sizes: tuple[int, int]) -> None:
    """The axes change places, so one part has ``s0`` where the other has ``s1``."""
    count = 2 * MIN_EQUAL_FUSED
    kernel = _turned(count)
    assert _calls(kernel) == count
    x = np.random.default_rng(8).normal(size=sizes).astype(np.float32)
    result = kernel(x)[0]
    assert result.tobytes() == _numpy_turned(x, count).tobytes()
    assert kernel(x, host=threaded_host(3))[0].tobytes() == result.tobytes()


def _bits(kernel: Kernel, times: int, x: Array) -> bytes | str:
    """What a kernel makes of ``x`` applied so often, or its error."""
    try:
        for _ in range(times):
            x = kernel(x)[0]
    except RuntimeError as error:
        return str(error)
    return x.tobytes()


def _windows(count: int) -> str:
    """Sums of three rows each, which are two rows fewer, and padding that adds these again."""
    kind, element = "tensor<?x8xf64>", "tensor<f64>"
    lines = [
        f'%r{n} = "stablehlo.reduce_window"(%v{n}, %z) <{{window_dimensions = array<i64: 3, 1>}}> ({{\n'
        f"^bb0(%p: {element}, %q: {element}):\n%s = stablehlo.add %p, %q : {element}\n"
        f"stablehlo.return %s : {element}\n}}) : ({kind}, {element}) -> {kind}\n"
        f"%v{n + 1} = stablehlo.pad %r{n}, %z, low = [1, 0], high = [1, 0], interior = [0, 0] : "
        f"({kind}, {element}) -> {kind}"
        for n in range(count)
    ]
    head = f"func.func @main(%v0: {kind}) -> {kind} {{\n%z = stablehlo.constant dense<0.0> : {element}"
    return "\n".join([head, *lines, f"return %v{count} : {kind}\n}}"])


@pytest.mark.long
def test_results_of_other_sizes_than_what_is_given() -> None:
    """Fewer rows than a window are rejected as they are without parts."""
    short, long = (Kernel(_compiled(_windows(count))) for count in (MIN_EQUAL_FUSED // 2, MIN_EQUAL_FUSED))
    assert [_calls(kernel) for kernel in (short, long)] == [0, MIN_EQUAL_FUSED]
    for size in (0, 1, 2, 3, 4, 31, 1009):
        x = np.random.default_rng(size).uniform(0, 1, (size, 8))
        expected = _bits(short, 2, x)
        assert _bits(long, 1, x) == expected, size
        assert isinstance(expected, bytes) == (size >= 2)


def _running(count: int) -> str:
    """Running sums along the open axis, as exporters write them: windows as long as it is."""
    kind, sizes = "tensor<?xf64>", "tensor<1xi32>"
    lines = [
        f"%m{n} = stablehlo.custom_call @stablehlo.dynamic_reduce_window"
        f"(%v{n}, %z, %n1, %ones, %ones, %ones, %padding) {{called_computations = [@run]}}"
        f" : ({kind}, tensor<f64>, {sizes}, {sizes}, {sizes}, {sizes}, tensor<1x2xi32>) -> {kind}\n"
        f"%c{n} = stablehlo.cosine %m{n} : {kind}\n"
        f"%v{n + 1} = stablehlo.reverse %c{n}, dims = [0] : {kind}"
        for n in range(count)
    ]
    body = "\n".join(lines)
    return f"""func.func @main(%v0: {kind}) -> {kind} {{
  %z = stablehlo.constant dense<0.0> : tensor<f64>
  %n = stablehlo.get_dimension_size %v0, dim = 0 : ({kind}) -> tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %less = stablehlo.subtract %n, %one : tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> {sizes}
  %ones = stablehlo.constant dense<1> : {sizes}
  %low = stablehlo.reshape %less : (tensor<i32>) -> {sizes}
  %zero = stablehlo.constant dense<0> : {sizes}
  %both = stablehlo.concatenate %low, %zero, dim = 0 : ({sizes}, {sizes}) -> tensor<2xi32>
  %padding = stablehlo.reshape %both : (tensor<2xi32>) -> tensor<1x2xi32>
  {body}
  return %v{count} : {kind}
}}
func.func private @run(%a: tensor<f64>, %b: tensor<f64>) -> tensor<f64> {{
  %r = stablehlo.add %a, %b : tensor<f64>
  return %r : tensor<f64>
}}"""


@pytest.mark.long
def test_parts_whose_attributes_are_sizes() -> None:
    short, long = (Kernel(_compiled(_running(count))) for count in (MIN_EQUAL_FUSED // 2, MIN_EQUAL_FUSED))
    assert [_calls(kernel) for kernel in (short, long)] == [0, MIN_EQUAL_FUSED]
    for size in (0, 1, 2, 3, 50, 1009, 70001):
        x = np.random.default_rng(size).normal(size=size)
        expected = _bits(short, 2, x)
        assert _bits(long, 1, x) == expected, size
        assert isinstance(expected, bytes) == (size > 0)


def _complex_windows(count: int) -> str:
    """Sums of three numbers that begin with a constant; in f64, where they stay finite."""
    kind, element = "tensor<?xcomplex<f64>>", "tensor<complex<f64>>"
    lines = [
        f'%v{n + 1} = "stablehlo.reduce_window"(%v{n}, %z) <{{window_dimensions = array<i64: 3>, '
        f"padding = dense<1> : tensor<1x2xi64>}}> ({{\n"
        f"^bb0(%p: {element}, %q: {element}):\n%s = stablehlo.add %p, %q : {element}\n"
        f"stablehlo.return %s : {element}\n}}) : ({kind}, {element}) -> {kind}"
        for n in range(count)
    ]
    head = f"func.func @main(%v0: {kind}) -> {kind} {{\n%z = stablehlo.constant dense<(0.0, 0.0)> : {element}"
    return "\n".join([head, *lines, f"return %v{count} : {kind}\n}}"])


@pytest.mark.long
def test_parts_of_complex_numbers() -> None:
    short, long = (
        Kernel(_compiled(_complex_windows(count))) for count in (MIN_EQUAL_FUSED // 2, MIN_EQUAL_FUSED)
    )
    assert [_calls(kernel) for kernel in (short, long)] == [0, MIN_EQUAL_FUSED]
    for size in (0, 1, 2, 3, 64, 1009):
        x = np.random.default_rng(size).normal(size=(size, 2)).view(np.complex128)[:, 0]
        expected = _bits(short, 2, x)
        assert isinstance(expected, bytes)
        assert _bits(long, 1, x) == expected, size


def test_parts_inside_of_a_loop() -> None:
    kind = "tensor<?x8xf32>"
    steps = "\n".join(
        f"{_sort(f's{n}', f'v{n}', kind, 0)}\n%v{n + 1} = stablehlo.negate %s{n} : {kind}"
        for n in range(MIN_EQUAL_FUSED + 1)
    )
    text = f"""func.func @main(%x: {kind}, %n: tensor<ui32>) -> ({kind}, tensor<ui32>) {{
  %zero = stablehlo.constant dense<0> : tensor<ui32>
  %one = stablehlo.constant dense<1> : tensor<ui32>
  %r:2 = stablehlo.while(%i = %zero, %v0 = %x) : tensor<ui32>, {kind}
  cond {{
    %c = stablehlo.compare LT, %i, %n : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    {steps}
    %j = stablehlo.add %i, %one : tensor<ui32>
    stablehlo.return %j, %v{MIN_EQUAL_FUSED + 1} : tensor<ui32>, {kind}
  }}
  return %r#1, %r#0 : {kind}, tensor<ui32>
}}"""
    kernel = Kernel(_compiled(text))
    assert _calls(kernel) == MIN_EQUAL_FUSED + 1
    for size in (0, 1, 5, 211):
        x = np.random.default_rng(9).normal(size=(size, 8)).astype(np.float32)
        for turns in (0, 1, 2):
            expected = x
            for _ in range(turns * (MIN_EQUAL_FUSED + 1)):
                expected = -np.sort(expected, axis=0)
            result, counted = kernel(x, np.uint32(turns))
            assert result.tobytes() == expected.tobytes()
            assert counted == turns


@pytest.mark.long
def test_what_counts_is_sorted_where_it_stands() -> None:
    """The code of such a sort reads no places: more than a part may know."""
    kind, places = "tensor<?x8xf32>", "tensor<?x8xi32>"
    lines = [
        f'%s{n}:2 = "stablehlo.sort"(%v{n}, %i) <{{dimension = 1 : i64, is_stable = true}}> ({{\n'
        "^bb0(%p: tensor<f32>, %q: tensor<f32>, %a: tensor<i32>, %b: tensor<i32>):\n"
        "%c = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        f"stablehlo.return %c : tensor<i1>\n}}) : ({kind}, {places}) -> ({kind}, {places})\n"
        f"%f{n} = stablehlo.convert %s{n}#1 : ({places}) -> {kind}\n"
        f"%v{n + 1} = stablehlo.subtract %f{n}, %s{n}#0 : {kind}"
        for n in range(MIN_EQUAL_FUSED)
    ]
    head = f"""func.func @main(%v0: {kind}) -> {kind} {{
  %d = stablehlo.get_dimension_size %v0, dim = 0 : ({kind}) -> tensor<i32>
  %e = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
  %g = stablehlo.constant dense<8> : tensor<1xi32>
  %h = stablehlo.concatenate %e, %g, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %i = stablehlo.dynamic_iota %h, dim = 1 : (tensor<2xi32>) -> {places}"""
    kernel = Kernel(_compiled("\n".join([head, *lines, f"return %v{MIN_EQUAL_FUSED} : {kind}\n}}"])))
    assert _calls(kernel) == 0
    x = np.random.default_rng(4).normal(size=(5, 8)).astype(np.float32)
    expected = x
    for _ in range(MIN_EQUAL_FUSED):
        places_of = np.argsort(expected, axis=1, kind="stable")
        expected = places_of.astype(np.float32) - np.take_along_axis(expected, places_of, 1)
    assert kernel(x)[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize("count", [2, MIN_EQUAL_FUSED])
def test_what_cannot_be_a_part_is_rejected_where_it_stands(count: int) -> None:
    kind = "tensor<?x8xf32>"
    steps = [
        _sort(f"v{n + 1}", f"v{n}", kind, 1).replace(
            "stablehlo.compare LT, %p, %q", "stablehlo.custom_call @unknown(%p, %q)"
        )
        for n in range(count)
    ]
    text = "\n".join([f"func.func @main(%v0: {kind}) -> {kind} {{", *steps, f"return %v{count} : {kind}\n}}"])
    with pytest.raises(UnsupportedOp, match="@unknown") as rejected:
        _compiled(text)
    assert rejected.value.op == "stablehlo.custom_call"
