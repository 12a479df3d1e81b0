"""Sorts are stable and give what the reference interpreter gives, on any number of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel, threaded_host
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.reference import ReferenceInterpreter
from tests.ops.harness.values import DTYPES, FLOATS, generator, random_bytes
from tests.ops.sort_scatter.sort_programs import Sort, sorts


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceInterpreter]:
    interpreter = ReferenceInterpreter()
    yield interpreter
    interpreter.close()


@pytest.mark.sampled(24)
@pytest.mark.parametrize(
    "program",
    sorts(),
    ids=lambda program: f"{program.dtype}-{program.shape}-{program.axis}-{program.keys}-{program.pairs}",
)
def test_sorts_agree_with_the_reference_interpreter(program: Sort, reference: ReferenceInterpreter) -> None:
    rng = generator("sort", program.dtype, program.shape)
    count = math.prod(program.shape)
    inputs = [random_bytes(rng, program.dtype, count, "tame" if program.dtype in FLOATS else "any")]
    if program.pairs:
        inputs.append(rng.integers(-3, 3, count).astype("<i4").tobytes())
    canonical = canonicalize(program.text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    kernel = compile_spec(canonical.spec_text, canonical.arg_spec, "x86-64-v3", options, lambda _: None)
    got = run(kernel, inputs, [constant.content for constant in canonical.constants])
    expected = reference.evaluate(program.text, inputs)
    for dtype, left, right in zip((program.dtype, "i32"), got, expected, strict=False):
        wrong = difference(dtype, left, right, 0.0)
        assert not wrong, f"{wrong}\n{program.text}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", FLOATS)
def test_total_order_goes_by_the_bits(dtype: str) -> None:
    program = Sort(dtype, (2, 70), 1, total=True)
    data = random_bytes(generator("total", dtype), dtype, 140, "any")
    kernel = lower_module(program.text, 1, "x86-64-v3", CompileOptions(numerics="strict"), lambda _: None)
    (got,) = run(kernel, [data], [])
    bits = np.frombuffer(data, DTYPES[dtype][1]).reshape(2, 70)
    signed = bits.view(bits.dtype.str.replace("u", "i"))
    keys = np.where(signed < 0, signed ^ np.iinfo(signed.dtype).max, signed)
    expected = np.take_along_axis(bits, np.argsort(keys, axis=1, kind="stable"), 1)
    np.testing.assert_array_equal(np.frombuffer(got, bits.dtype).reshape(2, 70), expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("length", [5, 257, 4000])
def test_equal_keys_keep_their_order_on_threads(length: int) -> None:
    program = Sort("i32", (9, length), 1, "LT", pairs=True)
    kernel = Kernel(lower_module(program.text, 2, "x86-64-v3", CompileOptions(), lambda _: None))
    keys = np.random.default_rng(length).integers(0, 7, (9, length)).astype(np.int32)
    places = np.broadcast_to(np.arange(length, dtype=np.int32), keys.shape)
    order = np.argsort(keys, axis=1, kind="stable")
    for host in (None, threaded_host()):
        ordered, moved = kernel(keys, places, host=host)
        np.testing.assert_array_equal(ordered, np.take_along_axis(keys, order, 1))
        np.testing.assert_array_equal(moved, order)


@pytest.mark.parametrize("way", ["LT", "GT"])
def test_nan_comes_last_by_less_and_first_by_greater(way: str) -> None:
    program = Sort("f32", (2, 100), 1, way, pairs=True)
    kernel = Kernel(lower_module(program.text, 2, "x86-64-v3", CompileOptions(), lambda _: None))
    values = np.random.default_rng(0).random((2, 100), np.float32)
    values[:, ::3] = np.nan
    ordered, moved = kernel(values, np.broadcast_to(np.arange(100, dtype=np.int32), (2, 100)))
    # Infinities stand for NaN at the end where it goes; a stable sort keeps the order of both.
    order = np.argsort(
        np.where(np.isnan(values), np.inf, values) * (1 if way == "LT" else -1), 1, kind="stable"
    )
    np.testing.assert_array_equal(ordered, np.take_along_axis(values, order, 1))
    np.testing.assert_array_equal(moved, order)


def test_comparators_that_contradict_themselves_leave_a_permutation() -> None:
    text = Sort("f32", (2, 100), 1).text.replace("compare LT", "compare NE")
    kernel = Kernel(lower_module(text, 1, "x86-64-v3", CompileOptions(), lambda _: None))
    values = np.random.default_rng(0).random((2, 100), np.float32)
    (ordered,) = kernel(values)
    np.testing.assert_array_equal(np.sort(ordered, 1), np.sort(values, 1))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("length", [16, 17, 33])
def test_narrow_floats_move_along(dtype: str, length: int) -> None:
    """LLVM has no instruction for a choice between two of them."""
    kind, scalar = f"tensor<{length}x{dtype}>", f"tensor<{dtype}>"
    text = f"""
    func.func @main(%a: tensor<{length}xi32>, %b: {kind}) -> (tensor<{length}xi32>, {kind}) {{
      %0:2 = "stablehlo.sort"(%a, %b) ({{
      ^bb0(%x: tensor<i32>, %y: tensor<i32>, %u: {scalar}, %v: {scalar}):
        %c = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }}) {{dimension = 0 : i64, is_stable = true}}
        : (tensor<{length}xi32>, {kind}) -> (tensor<{length}xi32>, {kind})
      return %0#0, %0#1 : tensor<{length}xi32>, {kind}
    }}"""
    keys = np.random.default_rng(length).integers(0, 7, length).astype(np.int32)
    values = np.arange(length).astype(NUMPY[dtype])
    order = np.argsort(keys, kind="stable")
    for target in ("x86-64-v2", "x86-64-v3"):
        ordered, moved = Kernel(lower_module(text, 2, target, CompileOptions(), lambda _: None))(keys, values)
        np.testing.assert_array_equal(ordered, keys[order])
        np.testing.assert_array_equal(moved.view(np.int16), values[order].view(np.int16))
