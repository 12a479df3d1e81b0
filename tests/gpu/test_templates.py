"""Kernels for GPUs compute what NumPy and the CPU's kernels compute, in any order of threads."""

from __future__ import annotations

import dataclasses

import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompiledKernel, CompileOptions
from tests.gpu.harness.emulate import ORDERS
from tests.gpu.harness.programs import TEMPLATES, Template
from tests.gpu.harness.run import optimized, run_gpu


def compiled(text: str, arguments: int, target: str = "sm_90") -> CompiledKernel:
    return lower_module(text, arguments, target, CompileOptions(), lambda _: None)


def _optimized(kernel: CompiledKernel, target: str = "sm_90") -> CompiledKernel:
    entries = [launch.entry for launch in kernel.interface.gpu_launches]
    ir = optimized(kernel.artifacts["llvm"].decode(), entries, target)
    return dataclasses.replace(kernel, artifacts={**kernel.artifacts, "llvm": ir.encode()})


def _check(template: Template, dtype: str, sizes: tuple[int, ...], orders: tuple[str, ...]) -> None:
    arguments = template.arguments(dtype, sizes)
    kernel = compiled(template.text(dtype, *sizes), len(arguments))
    for compiled_kernel in (kernel, _optimized(kernel)):
        for seed, order in enumerate(orders, 1):
            (got,) = run_gpu(compiled_kernel, arguments, order=order, seed=seed)
            template.check(dtype, arguments, got)


#: Of each template one size in f32 and one in f16 on every change; the rest in the long run.
_SAMPLE = [
    (template, dtype, template.sizes[at]) for template in TEMPLATES for dtype, at in (("f32", -1), ("f16", 3))
]
#: Rows that threads share evenly, whose elements stay in registers.
_SAMPLE += [
    (template, dtype, (9, 512))
    for template in TEMPLATES
    if template.name == "softmax"
    for dtype in ("f32", "bf16")
]

#: Tiles that end with rows and columns, but not with K.
_SAMPLE += [(template, "f64", (64, 128, 40)) for template in TEMPLATES if template.name == "matmul"]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("template", "dtype", "sizes"),
    _SAMPLE,
    ids=lambda value: getattr(value, "name", str(value)).replace(" ", ""),
)
def test_a_template_agrees_with_numpy(template: Template, dtype: str, sizes: tuple[int, ...]) -> None:
    _check(template, dtype, sizes, ("random",))


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_template_agrees_with_numpy_at_every_size_in_every_order(template: Template, dtype: str) -> None:
    for sizes in template.sizes:
        _check(template, dtype, sizes, ORDERS)


@pytest.mark.sampled(18)
@pytest.mark.parametrize(
    ("dtype", "sizes", "parts"),
    [("f16", (20, 24, 2056), 2), ("f32", (19, 17, 1030), 2), ("f64", (24, 20, 2048), 4)],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_a_product_with_few_tiles_is_split_along_k(
    dtype: str, sizes: tuple[int, int, int], parts: int
) -> None:
    (template,) = (candidate for candidate in TEMPLATES if candidate.name == "matmul")
    arguments = template.arguments(dtype, sizes)
    kernel = compiled(template.text(dtype, *sizes), len(arguments))
    assert kernel.interface.gpu_launches[0].grid == (str(parts), "1", "1")
    assert [launch.ops[0] for launch in kernel.interface.gpu_launches] == ["contraction", "points"]
    for seed, order in enumerate(ORDERS, 1):
        (got,) = run_gpu(kernel, arguments, order=order, seed=seed)
        template.check(dtype, arguments, got)


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((64, 64, 2040), CompileOptions()),
        ((64, 64, 2048), CompileOptions(schedule="gpu_split:1")),
        ((768, 768, 2048), CompileOptions()),
    ],
    ids=["too short", "chosen", "many tiles"],
)
def test_other_products_are_one_launch(sizes: tuple[int, int, int], options: CompileOptions) -> None:
    (template,) = (candidate for candidate in TEMPLATES if candidate.name == "matmul")
    text = template.text("bf16", *sizes)
    launches = lower_module(text, 3, "sm_90", options, lambda _: None).interface.gpu_launches
    assert [launch.ops[0] for launch in launches] == ["contraction"]
