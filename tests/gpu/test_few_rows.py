"""Products of few rows or columns in tiles: values of NumPy in any order of threads, tiles, parts of K."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.llvm.ptxas import assemble_ptx
from kcache_compiler.types import CompiledKernel, CompileOptions
from tests.compiler.codegen_harness import NUMPY
from tests.gpu.emulation.test_ptxas import needs_ptxas
from tests.gpu.harness.emulate import ORDERS
from tests.gpu.harness.programs import TOLERANCE, Array
from tests.gpu.harness.run import run_gpu

TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120")
#: Rows, columns, products of each.
Sizes = tuple[int, int, int]


def text(dtype: str, sizes: Sizes, transposed: bool) -> str:
    """A product of a by b or its transpose, plus c."""
    m, n, k = sizes
    right = (n, k) if transposed else (k, n)
    a, b, c = (f"tensor<{rows}x{columns}x{dtype}>" for rows, columns in ((m, k), right, (m, n)))
    return f"""func.func @main(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
      %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [{int(transposed)}] : ({a}, {b}) -> {c}
      %r = stablehlo.add %p, %c : {c}
      return %r : {c} }}"""


def shapes(sizes: Sizes, transposed: bool) -> list[tuple[int, int]]:
    m, n, k = sizes
    return [(m, k), (n, k) if transposed else (k, n), (m, n)]


def expected(arrays: list[Array], transposed: bool) -> Array:
    """The result in f64."""
    a, b, c = (array.astype("f8") for array in arrays)
    return a @ (b.T if transposed else b) + c


def compiled(dtype: str, sizes: Sizes, transposed: bool, target: str = "sm_90") -> CompiledKernel:
    return lower_module(text(dtype, sizes, transposed), 3, target, CompileOptions(), lambda _: None)


def forms(kernel: CompiledKernel) -> list[str]:
    return [launch.ops[0] for launch in kernel.interface.gpu_launches]


#: Type, sizes, whether b is transposed; each is tiled.
CASES: tuple[tuple[str, Sizes, bool], ...] = (
    ("f32", (1, 130, 1030), False),
    ("f32", (3, 100, 300), True),
    ("f32", (130, 6, 520), False),
    ("f64", (2, 70, 260), False),
    ("f64", (13, 70, 200), True),
    ("bf16", (1, 72, 2050), False),
    ("bf16", (5, 100, 1040), True),
    ("f16", (100, 3, 1100), False),
    ("f16", (16, 64, 128), True),
)


def check(dtype: str, sizes: Sizes, transposed: bool, orders: tuple[str, ...], target: str = "sm_90") -> None:
    rng = np.random.default_rng(sum(sizes))
    arrays = [rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in shapes(sizes, transposed)]
    kernel = compiled(dtype, sizes, transposed, target)
    assert forms(kernel) in (["contraction"], ["contraction", "points"])
    wanted = expected(arrays, transposed)
    scale = float(np.max(expected([np.abs(array) for array in arrays], transposed)))
    for seed, order in enumerate(orders, 1):
        (got,) = run_gpu(kernel, arrays, order=order, seed=seed)
        error = float(np.max(np.abs(got.astype("f8") - wanted)))
        assert error <= TOLERANCE[dtype] * scale, f"{error} of {scale}"


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("dtype", "sizes", "transposed"), CASES)
def test_few_rows_or_columns_are_tiled(dtype: str, sizes: Sizes, transposed: bool) -> None:
    check(dtype, sizes, transposed, ORDERS if dtype in ("f32", "bf16") else ("random",))


def test_plain_arithmetic_multiplies_narrow_floats_without_matrix_units() -> None:
    check("f16", (4, 96, 200), False, ("random",), "sm_75")


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("seed", range(8))
def test_random_sizes(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    few, many, k = int(rng.integers(2, 17)), int(rng.integers(64, 200)), int(rng.integers(256, 1500))
    sizes = (few, many, k) if seed % 2 else (many, few, k)
    check(dtype, sizes, bool(rng.integers(2)), (ORDERS[seed % 3],), ("sm_80", "sm_120")[seed % 2])


@pytest.mark.parametrize(
    ("dtype", "sizes", "transposed", "form"),
    [
        ("f32", (1, 4096, 4096), True, "rows"),  # dot products read 16 bytes at a time
        ("f32", (1, 4096, 4096), False, "contraction"),
        ("f32", (7, 5, 3), False, "points"),
        ("bf16", (2, 32, 4096), True, "rows"),
    ],
)
def test_other_forms_are_kept(dtype: str, sizes: Sizes, transposed: bool, form: str) -> None:
    assert form in forms(compiled(dtype, sizes, transposed))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("dtype", "sizes", "target", "blocks"),
    [
        ("bf16", (8, 4096, 4096), "sm_90", 64 * 4),
        ("bf16", (8, 4096, 4096), "sm_80", 64 * 2),
        ("f32", (4, 4096, 4096), "sm_90", 32 * 16),
        ("f32", (8, 4096, 4096), "sm_80", 32 * 8),
        ("f32", (16, 65536, 512), "sm_90", 1024),
        ("bf16", (8, 64, 1023), "sm_90", 1),
    ],
)
def test_the_number_of_blocks(dtype: str, sizes: Sizes, target: str, blocks: int) -> None:
    """Parts of K, of 1024 bytes and more, for 256 threads a multiprocessor, are at most 16."""
    kernel = compiled(dtype, sizes, True, target)
    assert int(kernel.interface.gpu_launches[0].grid[0]) == blocks


def convolution(dtype: str, channels: int) -> str:
    x, w, y = (
        f"tensor<{each}x{dtype}>" for each in ("1x40x14x14", f"{channels}x40x3x3", f"1x{channels}x12x12")
    )
    return f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
      %r = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
        window = {{}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {y}
      return %r : {y} }}"""


@pytest.mark.sampled(2)
@needs_ptxas
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_convolution_to_few_channels(dtype: str) -> None:
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in ((1, 40, 14, 14), (4, 40, 3, 3)))
    kernel = lower_module(convolution(dtype, 4), 2, "sm_90", CompileOptions(), lambda _: None)
    assert forms(kernel) == ["contraction"]
    (got,) = run_gpu(kernel, [x, w], order="random")
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), (3, 3), (2, 3))
    wanted = np.einsum("bchwij,ocij->bohw", windows, w.astype("f8"))
    assert np.abs(got.astype("f8") - wanted).max() <= TOLERANCE[dtype] * np.abs(wanted).max()
    _, resources = assemble_ptx(kernel.artifacts["ptx"].decode(), "sm_90")
    assert all(usage.spill_bytes == 0 for usage in resources.values())


@pytest.mark.sampled(2)
@needs_ptxas
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_tiles_of_few_rows_do_not_spill(dtype: str) -> None:
    _assembles(dtype, 4, False, "sm_90")


@needs_ptxas
@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("transposed", [False, True])
def test_tiles_of_few_rows_do_not_spill_on_any_architecture(
    dtype: str, transposed: bool, target: str
) -> None:
    for rows in (2, 8, 16):
        _assembles(dtype, rows, transposed, target)


def _assembles(dtype: str, rows: int, transposed: bool, target: str) -> None:
    for sizes in ((rows, 1000, 1001), (1024, rows, 1024)):
        ptx = compiled(dtype, sizes, transposed, target).artifacts["ptx"].decode()
        _, resources = assemble_ptx(ptx, target)
        assert all(usage.spill_bytes == 0 for usage in resources.values()), sizes
    kernel = lower_module(convolution(dtype, rows), 2, target, CompileOptions(), lambda _: None)
    _, resources = assemble_ptx(kernel.artifacts["ptx"].decode(), target)
    assert all(usage.spill_bytes == 0 for usage in resources.values())
