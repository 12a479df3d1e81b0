"""Sorts by keys give the stable order of NumPy and PyTorch to the bit, at all lengths and for all types."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module, lower_until
from kcache_compiler.lower.sort_scatter.marker import marked
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel, runs_here, threaded_host
from tests.ops.harness.values import FLOATS, random_bytes, tensor
from tests.ops.sort_scatter.sort_programs import Sort

INTEGERS = ("i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
#: Around the limits of counting, of blocks, and of tables.
LENGTHS = (2, 8, 9, 31, 64, 65, 127, 300, 512, 513, 1100)


def _program(dtype: str, length: int, way: str, first: int, counts: bool) -> str:
    """Rows sorted by ``way``, cut to ``first``; the second operand counts, or is given."""
    scalar, x, y = tensor(dtype, ()), tensor(dtype, (3, length)), tensor("i32", (3, length))
    cut_x, cut_y = tensor(dtype, (3, first)), tensor("i32", (3, first))
    iota = f"  %y = stablehlo.iota dim = 1 : {y}\n" if counts else ""
    return (
        f"func.func @main(%x: {x}{'' if counts else f', %y: {y}'}) -> ({cut_x}, {cut_y}) {{\n{iota}"
        f'  %v:2 = "stablehlo.sort"(%x, %y) <{{dimension = 1 : i64, is_stable = true}}> ({{\n'
        f"  ^bb0(%a: {scalar}, %b: {scalar}, %c: tensor<i32>, %d: tensor<i32>):\n"
        f"    %s = stablehlo.compare {way}, %a, %b : ({scalar}, {scalar}) -> tensor<i1>\n"
        f"    stablehlo.return %s : tensor<i1>\n  }}) : ({x}, {y}) -> ({x}, {y})\n"
        f"  %p = stablehlo.slice %v#0 [0:3, 0:{first}] : ({x}) -> {cut_x}\n"
        f"  %q = stablehlo.slice %v#1 [0:3, 0:{first}] : ({y}) -> {cut_y}\n"
        f"  return %p, %q : {cut_x}, {cut_y}\n}}\n"
    )


def _order(values: np.ndarray, way: str) -> np.ndarray:
    """The stable order in which zeros are equal, and NaNs, which are more than all numbers."""
    wide = values.astype(np.float32) if str(values.dtype) == "bfloat16" else values
    ranks = np.stack([np.unique(row, return_inverse=True)[1] for row in wide])
    return np.argsort(ranks if way == "LT" else -ranks, axis=1, kind="stable")


def _check(kernel: Kernel, values: np.ndarray, way: str, first: int, counts: bool, threads: bool) -> None:
    places = np.broadcast_to(np.arange(values.shape[1], dtype=np.int32), values.shape)
    inputs = [values] if counts else [values, np.ascontiguousarray(places)]
    ordered, moved = kernel(*inputs, host=threaded_host() if threads else None)
    order = _order(values, way)[:, :first]
    np.testing.assert_array_equal(moved, order)
    taken = np.take_along_axis(values, order, 1)
    assert np.ascontiguousarray(ordered).tobytes() == taken.tobytes()


def _kernel(text: str, inputs: int, target: str = "x86-64-v3") -> Kernel:
    return Kernel(lower_module(text, inputs, target, CompileOptions(), lambda _: None))


def _drawn(data: st.DataObject, dtype: str, length: int) -> np.ndarray:
    """Few different values, among them what is special, or any bits."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count = 3 * length
    drawn = np.frombuffer(random_bytes(rng, dtype, count, "any"), NUMPY[dtype]).reshape(3, length)
    if dtype in FLOATS:
        special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1, -1]).astype(NUMPY[dtype])
        chosen = special[rng.integers(0, len(special), (3, length))]
        return np.where(rng.random((3, length)) < data.draw(st.sampled_from([0, 0.2, 1])), chosen, drawn)
    return drawn if data.draw(st.booleans()) else drawn[:, rng.integers(0, min(4, length), length)]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@settings(max_examples=4, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_type_at_every_length(dtype: str, data: st.DataObject) -> None:
    length, way = data.draw(st.sampled_from(LENGTHS)), data.draw(st.sampled_from(["LT", "GT"]))
    first = data.draw(st.sampled_from([1, min(2, length), min(8, length), length - 1, length]))
    counts = data.draw(st.booleans())
    kernel = _kernel(_program(dtype, length, way, first, counts), 1 if counts else 2)
    for _ in range(4):
        _check(kernel, _drawn(data, dtype, length), way, first, counts, data.draw(st.booleans()))


@pytest.mark.sampled(18)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("total", [False, True])
def test_values_alone(dtype: str, total: bool) -> None:
    """Rows with and without elements whose keys do not tell them apart, at lengths around those of blocks."""
    rng = np.random.default_rng(len(dtype))
    length, way = int(rng.choice([17, 129, 400, 1300, 2500])), str(rng.choice(["LT", "GT"]))
    kernel = _kernel(Sort(dtype, (3, length), 1, way, total=total and dtype in FLOATS).text, 1)
    for kind in ("bits", "special", "tame"):
        values = np.frombuffer(random_bytes(rng, dtype, 3 * length, kind), NUMPY[dtype]).reshape(3, length)
        (ordered,) = kernel(values)
        keys = _total_order(values) if total and dtype in FLOATS else values
        assert ordered.tobytes() == np.take_along_axis(values, _order(keys, way), 1).tobytes()


@pytest.mark.parametrize(("dtype", "length", "by_network"), [("i8", 700, False), ("i16", 700, True)])
def test_long_rows_of_short_keys_are_sorted_by_their_bytes(dtype: str, length: int, by_network: bool) -> None:
    options, text = CompileOptions(), Sort(dtype, (3, length), 1, "LT").text
    compiled = lower_module(text, 1, "x86-64-v3", options, lambda _: None)
    assert (b"kcache_network_32" in compiled.artifacts["llvm"]) == by_network
    values = np.random.default_rng(1).integers(-128, 128, (3, length)).astype(NUMPY[dtype])
    np.testing.assert_array_equal(Kernel(compiled)(values)[0], np.sort(values, axis=1))


def _total_order(values: np.ndarray) -> np.ndarray:
    """Integers in the order of the bits of floats as sign and magnitude."""
    bits = values.view(f"i{values.itemsize}")
    return bits ^ ((bits >> (8 * values.itemsize - 1)) & np.iinfo(bits.dtype).max)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4"])
@pytest.mark.parametrize(("dtype", "length", "first"), [("f32", 70, 70), ("f32", 900, 5), ("i64", 600, 600)])
def test_vectors_of_every_width(target: str, dtype: str, length: int, first: int) -> None:
    if not runs_here(target):
        pytest.skip(f"no {target} here")
    values = np.random.default_rng(1).integers(-50, 50, (3, length)).astype(NUMPY[dtype])
    _check(_kernel(_program(dtype, length, "LT", first, True), 1, target), values, "LT", first, True, True)


def test_the_first_few_are_not_stored_with_the_rest() -> None:
    """Neither rows to work in nor the operand that counts."""
    kernel = _kernel(_program("f32", 100_000, "GT", 8, True), 1)
    assert [launch.ops for launch in kernel.interface.launches] == [("sort",)]
    assert evaluate_text(kernel.interface.workspace, {"workers": 1}) < 2 * 8 * 100_000 + 256


@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_open_lengths_take_the_same_ways(dtype: str) -> None:
    text = Sort(dtype, (5, 77), 1, "GT", pairs=True).text
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    arguments = ArgSpec(canonical.symbolic_args)
    options = CompileOptions(numerics="strict")
    kernel = Kernel(compile_spec(canonical.spec_text, arguments, "x86-64-v3", options, lambda _: None))
    assert len(kernel.interface.symbols) == 2
    for length in (1, 2, 9, 64, 65, 511, 512, 513, 1500):
        values = np.random.default_rng(length).integers(-9, 9, (3, length)).astype(NUMPY[dtype])
        _check(kernel, values, "GT", length, False, True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_values_of_open_lengths_stay_in_their_workspace(dtype: str) -> None:
    canonical = canonicalize(Sort(dtype, (5, 77), 1, "LT", pairs=False).text.encode(), "stablehlo", "default")
    arguments = ArgSpec(canonical.symbolic_args)
    kernel = Kernel(
        compile_spec(canonical.spec_text, arguments, "x86-64-v3", CompileOptions(), lambda _: None)
    )
    for length in (0, 1, 2, 16, 17, 33, 127, 129, 700):
        values = np.random.default_rng(length).integers(-9, 9, (3, length)).astype(NUMPY[dtype])
        np.testing.assert_array_equal(kernel(values)[0], np.sort(values, axis=1))


@pytest.mark.parametrize("kind", ["jax", "absolute", "mixed"])
def test_comparators_of_a_computed_key(kind: str) -> None:
    """JAX makes zeros and NaNs equal before it compares bits; any code that both sides share will do."""
    lines = {
        "jax": """%z = stablehlo.constant dense<0.0> : tensor<f32>
            %n = stablehlo.constant dense<0x7FC00000> : tensor<f32>
            %e = stablehlo.compare EQ, %a, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
            %f = stablehlo.select %e, %z, %a : tensor<i1>, tensor<f32>
            %g = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
            %p = stablehlo.select %g, %n, %f : tensor<i1>, tensor<f32>
            %h = stablehlo.compare EQ, %b, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
            %i = stablehlo.select %h, %z, %b : tensor<i1>, tensor<f32>
            %j = stablehlo.compare NE, %b, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
            %q = stablehlo.select %j, %n, %i : tensor<i1>, tensor<f32>
            %s = stablehlo.compare LT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>""",
        "absolute": """%p = stablehlo.abs %a : tensor<f32>
            %q = stablehlo.abs %b : tensor<f32>
            %s = stablehlo.compare GT, %q, %p : (tensor<f32>, tensor<f32>) -> tensor<i1>""",
        "mixed": """%p = stablehlo.subtract %a, %b : tensor<f32>
            %q = stablehlo.subtract %b, %a : tensor<f32>
            %s = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>""",
    }[kind]
    plain = Sort("f32", (3, 90), 1)
    compared = "%s = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>"
    text = plain.text.replace(compared, lines)
    assert text != plain.text
    values = np.random.default_rng(3).standard_normal((3, 90)).astype(np.float32)
    values[:, ::7], values[:, 1::11] = 0.0, -0.0
    if kind != "mixed":
        values[:, 2::13] = np.nan
    keys = np.abs(values) if kind == "absolute" else values
    with lower_until(text, 1, "x86-64-v3", "fuse") as module:
        kinds = [key[0] for op in mlir.named(module, "linalg.generic") if (key := marked(op))]
    assert kinds == ["sort" if kind == "mixed" else "keyed"]
    (ordered,) = _kernel(text, 1)(values)
    assert ordered.tobytes() == np.take_along_axis(values, _order(keys, "LT"), 1).tobytes()
