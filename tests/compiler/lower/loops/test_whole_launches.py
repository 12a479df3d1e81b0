"""Launches that are always one slice: their bounds are constants, and their results those of sliced ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kcache_compiler.compile import lower_module, lower_until
from kcache_compiler.lower.loops.group_body import FEW_ROWS
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loop_nest import SLICE_WORK
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel, kernel_of, threaded_host

#: The body of the first launch, whose loops end at ``%1`` if it is sliced.
_BODY = re.compile(
    r"^define internal i32 @launch_0\(i64 %0, i64 %1,[^\n]*\n(.*?)^}", re.DOTALL | re.MULTILINE
)


def _roots(count: int) -> str:
    kind = f"tensor<{count}xf32>"
    return f"""
      func.func @main(%x: {kind}) -> {kind} {{
        %0 = stablehlo.abs %x : {kind}
        %1 = stablehlo.sqrt %0 : {kind}
        return %1 : {kind}
      }}"""


def _group_means(groups: int, channels: int) -> str:
    """Of rows, each element as the mean of its row."""
    kind, means = f"tensor<{groups}x{channels}xf32>", f"tensor<{groups}xf32>"
    return f"""
      func.func @main(%x: {kind}) -> {kind} {{
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %count = stablehlo.constant dense<{float(channels)}> : {means}
        %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
          : ({kind}, tensor<f32>) -> {means}
        %mean = stablehlo.divide %sum, %count : {means}
        %all = stablehlo.broadcast_in_dim %mean, dims = [0] : ({means}) -> {kind}
        return %all : {kind}
      }}"""


def _slices(steps: int) -> str:
    """The softmax of each row: equal launches, each over another part of the argument."""
    kind, row = f"tensor<{steps}x128xf32>", "tensor<128xf32>"
    lines = [
        f"""
        %s{n} = stablehlo.slice %x [{n}:{n + 1}, 0:128] : ({kind}) -> tensor<1x128xf32>
        %r{n} = stablehlo.reshape %s{n} : (tensor<1x128xf32>) -> {row}
        %m{n} = stablehlo.reduce(%r{n} init: %low) applies stablehlo.maximum across dimensions = [0]
          : ({row}, tensor<f32>) -> tensor<f32>
        %b{n} = stablehlo.broadcast_in_dim %m{n}, dims = [] : (tensor<f32>) -> {row}
        %d{n} = stablehlo.subtract %r{n}, %b{n} : {row}"""
        for n in range(steps)
    ]
    results = ", ".join(f"%d{n}" for n in range(steps))
    kinds = ", ".join([row] * steps)
    return f"""
      func.func @main(%x: {kind}) -> ({kinds}) {{
        %low = stablehlo.constant dense<0xFF800000> : tensor<f32>{"".join(lines)}
        return {results} : {kinds}
      }}"""


def _llvm(text: str, schedule: str = "") -> str:
    options = CompileOptions(schedule=schedule)
    kernel = lower_module(text, 1, "x86-64-v3", options, lambda _: None)
    return kernel.artifacts["llvm"].decode()


@pytest.mark.parametrize(
    ("count", "schedule", "sliced"),
    [
        (100, "", False),
        (2 * SLICE_WORK - 1, "", False),
        (2 * SLICE_WORK, "", True),
        (2 * SLICE_WORK, "grain:4", False),
        (SLICE_WORK, "grain:1/4", True),
        (100, "launches:reported", True),
    ],
)
def test_only_launches_of_one_slice_have_constant_bounds(count: int, schedule: str, sliced: bool) -> None:
    body = _BODY.search(_llvm(_roots(count), schedule))
    assert body is not None
    assert bool(re.search(r"%1\b", body[1])) == sliced


@pytest.mark.sampled(3)
@pytest.mark.parametrize("count", [1, 15, 1000, 2 * SLICE_WORK - 1, 2 * SLICE_WORK, 2 * SLICE_WORK + 1])
def test_results_do_not_depend_on_slices(count: int) -> None:
    x = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    kernel = kernel_of(_roots(count))
    np.testing.assert_array_equal(kernel(x)[0], np.sqrt(np.abs(x)))
    np.testing.assert_array_equal(kernel(x, host=threaded_host())[0], np.sqrt(np.abs(x)))


def test_reported_launches_may_be_sliced() -> None:
    """A host that reports launches is asked about each of them."""
    options = CompileOptions(schedule="launches:reported")
    kernel = Kernel(lower_module(_roots(1000), 1, "x86-64-v2", options, lambda _: None))
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    np.testing.assert_array_equal(kernel(x, host=threaded_host())[0], np.sqrt(np.abs(x)))


@pytest.mark.parametrize(("groups", "scalar"), [(32, True), (FEW_ROWS, True), (FEW_ROWS + 1, False)])
def test_few_short_rows_are_not_vectorized_together(groups: int, scalar: bool) -> None:
    assert ('"llvm.loop.vectorize.width", i32 1}' in _llvm(_group_means(groups, 16))) == scalar


@pytest.mark.sampled(9)
@pytest.mark.parametrize("groups", [1, 2, 31, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("channels", [1, 3, 16, 67])
def test_means_of_short_rows(groups: int, channels: int) -> None:
    x = np.random.default_rng(groups).standard_normal((groups, channels)).astype(np.float32)
    wanted = np.broadcast_to(x.astype(np.float64).mean(1, keepdims=True), x.shape)
    kernel = kernel_of(_group_means(groups, channels), "x86-64-v3")
    np.testing.assert_allclose(kernel(x)[0], wanted, rtol=0, atol=1e-6)


def test_equal_launches_over_parts_of_a_buffer_are_written_once() -> None:
    with lower_until(_slices(8), 1, "x86-64-v2", "share") as module:
        names = [mlir.symbol_of(op) for op in mlir.named(module, "func.func")]
    launches = [name for name in names if re.fullmatch(r"launch_\d+", name)]
    assert 0 < len(launches) <= 4, launches
    x = np.random.default_rng(0).standard_normal((8, 128)).astype(np.float32)
    for found, row in zip(kernel_of(_slices(8))(x), x, strict=True):
        np.testing.assert_array_equal(found, row - row.max())
