"""Every schedule choice of kernels for GPUs gives right results, or is rejected before there is a kernel."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.gpu_targets import GPU_TARGETS
from kcache_compiler.llvm.ptxas import find_ptxas
from kcache_compiler.lower.gpu.tile_sizes import DEFAULTS, Sizes
from kcache_compiler.schedule.choices import CHOICES, GpuChoices
from kcache_compiler.types import CompiledKernel, CompileOptions
from tests.compiler.gpu.programs import PRODUCT as OPENED
from tests.gpu.chosen import case, judged
from tests.gpu.harness.emulate import ORDERS
from tests.gpu.harness.programs import TEMPLATES, narrow_attention
from tests.gpu.harness.run import run_gpu

BY_NAME = {template.name: template for template in TEMPLATES}
GPU = {name: values for name, values in CHOICES.items() if name.startswith("gpu_")}
#: Of each form choices that change it, at sizes that fit nothing: on every change.
SAMPLE = [
    ("pointwise", "f32", (7, 255), "gpu_bytes:8,gpu_items:2,gpu_threads:128"),
    ("pointwise", "f16", (4, 1000), "gpu_items:4,gpu_threads:512"),
    ("softmax", "f32", (5, 1000), "gpu_bytes:4,gpu_row:64"),
    ("softmax", "f16", (37, 64), "gpu_rows:2"),
    ("row sums", "f32", (5, 33), "gpu_row:128"),
    ("matmul", "f16", (33, 65, 17), "gpu_depth:64,gpu_stages:2,gpu_tile:128x64"),
    ("matmul", "bf16", (100, 72, 88), "gpu_depth:16,gpu_stages:5,gpu_tile:64x128"),
    ("matmul", "f32", (33, 65, 17), "gpu_depth:16,gpu_tile:128x64"),
    ("matmul", "f32", (20, 33, 70), "gpu_split:4"),
    ("batched", "f16", (2, 33, 40, 72), "gpu_split:2"),
]
#: What decides a product together.
PRODUCTS = ("gpu_tile", "gpu_depth", "gpu_warps", "gpu_stages", "gpu_split")
#: Sizes for the long run, by the template.
SIZES = {
    "pointwise": ((5, 33), (4, 1000)),
    "softmax": ((5, 33), (9, 512), (2, 1025)),
    "row sums": ((7, 255), (4, 1000)),
    "column sums": ((301, 3),),
    "matmul": ((33, 65, 17), (130, 136, 40)),
    "batched": ((3, 7, 5, 9), (2, 33, 40, 24)),
}


def compiled(text: str, arguments: int, schedule: str, target: str = "sm_90") -> CompiledKernel:
    return lower_module(text, arguments, target, CompileOptions(schedule=schedule), lambda _: None)


def _check(name: str, dtype: str, sizes: tuple[int, ...], schedule: str, order: str = "random") -> None:
    template = BY_NAME[name]
    arguments = template.arguments(dtype, sizes)
    kernel = compiled(template.text(dtype, *sizes), len(arguments), schedule)
    (got,) = run_gpu(kernel, arguments, order=order)
    template.check(dtype, arguments, got)


@pytest.mark.sampled(36)
@pytest.mark.parametrize(("name", "dtype", "sizes", "schedule"), SAMPLE, ids=lambda value: str(value))
def test_results_are_right_under_choices(
    name: str, dtype: str, sizes: tuple[int, ...], schedule: str
) -> None:
    _check(name, dtype, sizes, schedule)
    template = BY_NAME[name]
    text, count = template.text(dtype, *sizes), len(template.shapes(*sizes))
    codes = [compiled(text, count, choice).artifacts["ptx"] for choice in ("", schedule)]
    assert codes[0] != codes[1], "the choice changes nothing here"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("name", list(SIZES))
def test_each_value_of_each_choice(name: str, dtype: str) -> None:
    count = 0
    for sizes in SIZES[name]:
        for number, schedule in enumerate(_each(name)):
            with _or_rejected():
                _check(name, dtype, sizes, schedule, ORDERS[number % len(ORDERS)])
                count += 1
    assert count


@contextmanager
def _or_rejected() -> Generator[None, None, None]:
    try:
        yield
    except CompileFailed as rejected:
        if rejected.stage != "schedule":
            raise


def _each(name: str) -> Iterator[str]:
    product = name in ("matmul", "batched")
    yield from (
        f"{choice}:{value}"
        for choice, values in GPU.items()
        for value in values[1:]
        if (choice in PRODUCTS) == product
    )
    if product:
        together = (("64x64", "128x128", "128x256"), ("16", "64"), ("4", "8"), ("2", "4"), ("1", "4"))
        for values in itertools.product(*together):
            yield ",".join(
                f"{choice}:{value}" for choice, value in sorted(zip(PRODUCTS, values, strict=True))
            )


@pytest.mark.parametrize(
    ("element", "schedule"),
    [
        ("f16", "gpu_columns:32,gpu_keys:32"),
        *(
            pytest.param(element, f"{name}:{value}", marks=pytest.mark.long)
            for element in ("f32", "f16", "bf16")
            for name in ("gpu_keys", "gpu_columns")
            for value in GPU[name][1:]
        ),
    ],
)
def test_attention_is_right_under_choices(element: str, schedule: str) -> None:
    sizes = (1, 1, 37, 75, 40)
    text = narrow_attention(*sizes, element, causal=True)
    kernel, plain = (compiled(text, 3, choice) for choice in (schedule, ""))
    rng = np.random.default_rng(5)
    dtype = BY_NAME["matmul"].arguments(element, (1, 1, 1))[0].dtype
    arrays = [rng.standard_normal((1, 1, count, 40)).astype(dtype) for count in (37, 75, 75)]
    results = [
        run_gpu(compiled_kernel, arrays, order="random")[0].astype("f8")
        for compiled_kernel in (kernel, plain)
    ]
    default = schedule in ("gpu_columns:64", "gpu_keys:32" if element == "f32" else "gpu_keys:64")
    assert (kernel.artifacts["ptx"] == plain.artifacts["ptx"]) == default
    np.testing.assert_allclose(results[0], results[1], atol=2e-2 if element != "f32" else 1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed > 4)) for seed in range(1, 61)]
)
def test_random_choices_give_what_a_cpu_gives(seed: int) -> None:
    drawn = case(seed)
    assert judged(drawn) in ("right", "rejected"), drawn


def test_parts_of_k_have_their_place_at_every_size() -> None:
    kernel = compiled(OPENED, 2, "gpu_split:4")
    sums, ends = kernel.interface.gpu_launches
    assert (sums.ops[0], ends.ops[0]) == ("contraction", "points")
    assert "s0" in kernel.interface.workspace
    for rows in (1, 33, 70):
        rng = np.random.default_rng(rows)
        a, b = (rng.standard_normal(shape, np.float32) for shape in ((rows, 64), (64, 96)))
        np.testing.assert_allclose(run_gpu(kernel, [a, b])[0], a @ b, atol=1e-4)


@pytest.mark.parametrize("target", list(GPU_TARGETS))
def test_the_defaults_of_an_architecture_are_tiles_that_it_can_have(target: str) -> None:
    gpu = GPU_TARGETS[target]
    defaults = DEFAULTS[gpu.capability]
    few = (defaults.few_matrix, *defaults.few_plain)
    for tile in (defaults.matrix, defaults.small_matrix, defaults.plain, defaults.large_plain, *few):
        chosen = GpuChoices((tile.m, tile.n), tile.k, tile.threads // 32, tile.stages)
        for large in (False, True):
            tile_sizes = Sizes(gpu, chosen).tile(matrix=tile.own == 0, large=large)
            assert (tile_sizes.m, tile_sizes.n, tile_sizes.k, tile_sizes.threads, tile_sizes.own) == (
                *(tile.m, tile.n, tile.k, tile.threads, tile.own),
            )


@pytest.mark.parametrize(
    ("dtype", "target", "schedule", "reason"),
    [
        ("f16", "sm_90", "gpu_depth:8", "matrix instructions do not divide a tile of"),
        ("f16", "sm_86", "gpu_depth:64,gpu_stages:5,gpu_tile:128x256", "bytes of shared memory, of 100352"),
        ("f32", "sm_90", "gpu_tile:128x128,gpu_warps:4", "threads of plain arithmetic own 4 x 4 or 8 x 8"),
        ("f32", "sm_90", "tile:8x2", "tile is a choice of kernels for CPUs, and this one is for GPUs"),
        ("f32", "sm_90", "gpu_tile:3x3", "no schedule choice"),
    ],
)
def test_choices_that_a_gpu_cannot_have_are_rejected(
    dtype: str, target: str, schedule: str, reason: str
) -> None:
    template = BY_NAME["matmul"]
    with pytest.raises(CompileFailed, match=reason) as rejected:
        compiled(template.text(dtype, 128, 128, 64), 3, schedule, target)
    assert rejected.value.stage == "schedule"


def test_a_cpu_has_none_of_them() -> None:
    template = BY_NAME["pointwise"]
    with pytest.raises(CompileFailed, match="gpu_items is a choice of kernels for GPUs"):
        lower_module(
            template.text("f32", 8, 8), 2, "x86-64-v3", CompileOptions(schedule="gpu_items:2"), lambda _: None
        )


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: pip install 'kcache-grpc[cubin]'")
def test_a_choice_that_spills_registers_is_rejected() -> None:
    template = BY_NAME["matmul"]
    with pytest.raises(CompileFailed, match=r"too few registers for it: .* launch_0 \d+"):
        compiled(template.text("f16", 512, 512, 64), 3, "gpu_depth:16,gpu_tile:256x128,gpu_warps:4")
