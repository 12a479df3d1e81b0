"""Barriers and guards of the kernels that we generate: without one the emulator says what goes wrong."""

from __future__ import annotations

import dataclasses
import re
from functools import cache

import numpy as np
import pytest

from kcache_compiler.types import CompiledKernel
from tests.compiler.codegen_harness import NUMPY
from tests.gpu.harness.emulate import EmulationError
from tests.gpu.harness.programs import TEMPLATES, Array, Template, narrow_attention
from tests.gpu.harness.run import run_gpu
from tests.gpu.test_templates import compiled

#: A barrier in the IR of a kernel.
WAIT = re.compile(
    r"^ +call void @llvm\.nvvm\.(?:barrier\.cta\.sync\.aligned\.all|bar\.warp\.sync)\(.*\n", re.MULTILINE
)
_GROUPS = re.compile(r"(call void @llvm\.nvvm\.cp\.async\.wait\.group\(i32 )(\d+)\)")
_MISSED = r"race|uninitialized|may not have written"
_GUARD = re.compile(r"icmp slt i64 (%\S+), (\d+)$", re.MULTILINE)


@cache
def _kernel(name: str, dtype: str, sizes: tuple[int, ...]) -> tuple[Template, CompiledKernel, list[Array]]:
    (template,) = (candidate for candidate in TEMPLATES if candidate.name == name)
    arguments = template.arguments(dtype, sizes)
    return template, compiled(template.text(dtype, *sizes), len(arguments)), arguments


def _with_ir(kernel: CompiledKernel, ir: str) -> CompiledKernel:
    return dataclasses.replace(kernel, artifacts={**kernel.artifacts, "llvm": ir.encode()})


@cache
def _attention(element: str, sizes: tuple[int, ...]) -> tuple[CompiledKernel, list[Array]]:
    text = narrow_attention(*sizes, element, causal=True)  # type: ignore[misc]
    rng = np.random.default_rng(1)
    batch, heads, queries, keys, depth = sizes
    shapes = [(batch, heads, count, depth) for count in (queries, keys, keys)]
    return compiled(text, 3), [rng.standard_normal(shape).astype(NUMPY[element]) for shape in shapes]


def _case(name: str, dtype: str, sizes: tuple[int, ...]) -> tuple[CompiledKernel, list[Array]]:
    return _attention(dtype, sizes) if name == "attention" else _kernel(name, dtype, sizes)[1:]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("name", "dtype", "sizes", "barriers"),
    [
        ("softmax", "f32", (2, 1100), 2),
        ("row sums", "f32", (2, 1100), 1),
        ("matmul", "f16", (70, 72, 200), 5),
        ("matmul", "f16", (70, 66, 100), 5),
        ("matmul", "f32", (70, 66, 50), 3),
        ("attention", "f16", (1, 1, 70, 140, 16), 4),
        ("attention", "f32", (1, 1, 130, 130, 16), 6),
    ],
)
def test_every_barrier_is_missed(name: str, dtype: str, sizes: tuple[int, ...], barriers: int) -> None:
    kernel, arguments = _case(name, dtype, sizes)
    ir = kernel.artifacts["llvm"].decode()
    waits = list(WAIT.finditer(ir))
    assert len(waits) == barriers
    for wait in waits:
        without = _with_ir(kernel, ir[: wait.start()] + ir[wait.end() :])
        with pytest.raises(EmulationError, match=_MISSED):
            run_gpu(without, arguments, order="random")


@pytest.mark.parametrize(("name", "sizes"), [("matmul", (70, 72, 200)), ("attention", (1, 1, 40, 140, 16))])
def test_a_wait_for_fewer_copies_is_noticed(name: str, sizes: tuple[int, ...]) -> None:
    """Of the waits that a product or a score follows, one more group is left under way."""
    kernel, arguments = _case(name, "f16", sizes)
    ir = kernel.artifacts["llvm"].decode()
    (first, *_) = _GROUPS.finditer(ir)
    changed = f"{first[1]}{int(first[2]) + 1})"
    with pytest.raises(EmulationError, match="may not have written"):
        run_gpu(_with_ir(kernel, ir[: first.start()] + changed + ir[first.end() :]), arguments)


@pytest.mark.parametrize(
    ("name", "dtype", "sizes"),
    [("pointwise", "f32", (3, 5)), ("column sums", "f32", (9, 70))],
)
def test_a_guard_is_missed(name: str, dtype: str, sizes: tuple[int, ...]) -> None:
    """Every comparison with a size is made to hold, one at a time: some access leaves its buffer."""
    _, kernel, arguments = _kernel(name, dtype, sizes)
    ir = kernel.artifacts["llvm"].decode()
    outside = 0
    for guard in _GUARD.finditer(ir):
        always = f"{guard[0]}\n".replace(f", {guard[2]}\n", f", {1 << 40}")
        try:
            run_gpu(_with_ir(kernel, ir[: guard.start()] + always + ir[guard.end() :]), arguments, timeout=30)
        except EmulationError as error:
            outside += "out of bounds" in str(error)
    assert outside
