"""Reductions with few results are split into parts: the values of NumPy, in any order of threads."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompiledKernel, CompileOptions
from tests.compiler.codegen_harness import Kernel
from tests.compiler.schedule.test_split_reductions import COMBINERS, random, reduction
from tests.gpu.harness.emulate import ORDERS
from tests.gpu.harness.programs import Array, narrow_attention
from tests.gpu.harness.run import run_gpu

Shape = tuple[int, ...]
#: Shape, reduced axes, combiner, element; each is split.
CASES: tuple[tuple[Shape, Shape, str, str], ...] = (
    ((32768,), (0,), "add", "f32"),
    ((96, 512), (0, 1), "maximum", "f32"),
    ((1024, 24), (0,), "add", "bf16"),
    ((4, 300, 7), (1,), "add", "f64"),
    ((16, 20, 24), (0, 1), "multiply", "f32"),
    ((3, 16384), (1,), "add", "i32"),
    ((2, 512, 12), (1,), "minimum", "i8"),
)


def compiled(text: str, arguments: int = 1, numerics: str = "default") -> CompiledKernel:
    return lower_module(text, arguments, "sm_90", CompileOptions(numerics), lambda _: None)


def blocks(kernel: CompiledKernel) -> int:
    """The most blocks of a launch."""
    return max(int(launch.grid[0]) for launch in kernel.interface.gpu_launches)


def values(shape: Shape, combiner: str, element: str) -> Array:
    """Normal values; of products their signs."""
    x = random(shape, element, sum(shape))
    return np.sign(x).astype(x.dtype) if combiner == "multiply" else x


def oracle(x: Array, dims: Shape, combiner: str, element: str) -> tuple[Array, float]:
    """The result in f64 or i64, and the error that is allowed."""
    wide = x.astype(np.int64 if x.dtype.kind == "i" else np.float64)
    wanted = np.asarray(COMBINERS[combiner][2].reduce(wide, axis=dims))
    if combiner != "add" or x.dtype.kind == "i":
        return wanted, 0.0
    bound = {"f32": 2e-6, "f64": 1e-14, "bf16": 2e-6 + 2.0**-8, "f16": 2e-6 + 2.0**-11}[element]
    rounded = element in ("f32", "f64")
    size = np.abs(wide).sum(axis=dims) if rounded else np.abs(wanted) + 1
    return wanted, bound * float(np.max(size))


def check(shape: Shape, dims: Shape, combiner: str, element: str, orders: tuple[str, ...]) -> CompiledKernel:
    x = values(shape, combiner, element)
    kernel = compiled(reduction(shape, dims, combiner, element))
    wanted, atol = oracle(x, dims, combiner, element)
    for seed, order in enumerate(orders, 1):
        (got,) = run_gpu(kernel, [x], order=order, seed=seed)
        np.testing.assert_allclose(got.astype(wanted.dtype), wanted.astype(wanted.dtype), rtol=0, atol=atol)
    return kernel


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("shape", "dims", "combiner", "element"), CASES)
def test_few_results_are_computed_in_parts(shape: Shape, dims: Shape, combiner: str, element: str) -> None:
    kernel = check(shape, dims, combiner, element, ORDERS)
    assert kernel.interface.workspace != "0"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_random_reductions_are_right(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = tuple(int(size) for size in rng.choice([1, 2, 3, 6, 12, 30, 64, 97, 120, 128, 500], rank))
    dims = tuple(axis for axis in range(rank) if rng.random() < 0.7) or (0,)
    combiner = str(rng.choice(["add", "maximum", "minimum"]))
    element = str(rng.choice(["f32", "f64", "f16", "bf16", "i32"]))
    check(shape, dims, combiner, element, (ORDERS[seed % 3],))


def test_a_sum_of_a_large_tensor_fills_a_gpu() -> None:
    assert blocks(compiled(reduction((1 << 26,), (0,)))) == 256
    assert blocks(compiled(reduction((65536, 1024), (0,)))) == 256
    assert blocks(compiled(reduction((65537,), (0,)))) == 1


def test_strict_sums_keep_their_order() -> None:
    text = reduction((1024, 5), (0,))
    x = random((1024, 5))
    kernel = compiled(text, numerics="strict")
    cpu = Kernel(lower_module(text, 1, "x86-64-v3", CompileOptions("strict"), lambda _: None))
    np.testing.assert_array_equal(run_gpu(kernel, [x])[0], cpu(x)[0])
    assert blocks(kernel) == 1


def _product(rows: int, depth: int, columns: int) -> str:
    a, b, c = (f"tensor<{m}x{n}xf32>" for m, n in ((rows, depth), (depth, columns), (rows, columns)))
    return f"""func.func @main(%a: {a}, %b: {b}) -> {c} {{
      %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({a}, {b}) -> {c}
      return %r : {c} }}"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 1024, 40), (3, 640, 33), (40, 16384, 1)])
def test_products_of_few_rows_or_columns_are_right(rows: int, depth: int, columns: int) -> None:
    a, b = random((rows, depth)), random((depth, columns), seed=1)
    kernel = compiled(_product(rows, depth, columns), 2)
    assert len(kernel.interface.gpu_launches) > 1
    wanted = a.astype("f8") @ b
    for seed, order in enumerate(ORDERS, 1):
        (got,) = run_gpu(kernel, [a, b], order=order, seed=seed)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-6 * depth)


def test_the_reductions_of_attention_stay_whole() -> None:
    kernel = compiled(narrow_attention(1, 1, 8, 1 << 16, 16, "bf16", causal=False), 3)
    assert [launch.ops[0] for launch in kernel.interface.gpu_launches] == ["attention", "points"]


def test_elements_before_the_reduction_are_computed_in_its_parts() -> None:
    kind = "tensor<512x64xf32>"
    text = f"""func.func @main(%a: {kind}, %b: tensor<64xf32>) -> tensor<f32> {{
      %w = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<64xf32>) -> {kind}
      %d = stablehlo.subtract %a, %w : {kind}
      %q = stablehlo.multiply %d, %d : {kind}
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [0, 1]
        : ({kind}, tensor<f32>) -> tensor<f32>
      return %s : tensor<f32> }}"""
    kernel = compiled(text, 2)
    assert [launch.ops[0] for launch in kernel.interface.gpu_launches] == ["rows", "rows"]
    a, b = random((512, 64)), random((64,), seed=1)
    wanted = ((a.astype("f8") - b) ** 2).sum()
    arrays: list[Array] = [a, b]
    np.testing.assert_allclose(run_gpu(kernel, arrays, order="random")[0], wanted, rtol=1e-6)
