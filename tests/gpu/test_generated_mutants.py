"""Barriers and guards of the kernels that we generate: without one the emulator says what goes wrong."""

from __future__ import annotations

import dataclasses
import re
from functools import cache

import pytest

from kcache_compiler.types import CompiledKernel
from tests.gpu.emulate import EmulationError
from tests.gpu.programs import TEMPLATES, Array, Template
from tests.gpu.run import run_gpu
from tests.gpu.test_templates import compiled

_WAIT = re.compile(
    r"^ +call void @llvm\.nvvm\.(?:barrier\.cta\.sync\.aligned\.all|bar\.warp\.sync)\(.*\n", re.MULTILINE
)
_GUARD = re.compile(r"icmp slt i64 (%\S+), (\d+)$", re.MULTILINE)


@cache
def _kernel(name: str, dtype: str, sizes: tuple[int, ...]) -> tuple[Template, CompiledKernel, list[Array]]:
    (template,) = (one for one in TEMPLATES if one.name == name)
    arguments = template.arguments(dtype, sizes)
    return template, compiled(template.text(dtype, *sizes), len(arguments)), arguments


def _with_ir(kernel: CompiledKernel, ir: str) -> CompiledKernel:
    return dataclasses.replace(kernel, artifacts={**kernel.artifacts, "llvm": ir.encode()})


@pytest.mark.parametrize(
    ("name", "dtype", "sizes"),
    [
        ("softmax", "f32", (2, 1100)),
        ("row sums", "f32", (2, 1100)),
        ("matmul", "f16", (70, 66, 100)),
        ("matmul", "f32", (70, 66, 50)),
    ],
)
def test_a_barrier_is_missed_or_was_not_needed(name: str, dtype: str, sizes: tuple[int, ...]) -> None:
    template, kernel, arguments = _kernel(name, dtype, sizes)
    ir = kernel.artifacts["llvm"].decode()
    missed = 0
    for wait in _WAIT.finditer(ir):
        without = _with_ir(kernel, ir[: wait.start()] + ir[wait.end() :])
        try:
            (got,) = run_gpu(without, arguments, order="random")
        except EmulationError as error:
            assert re.search("race|uninitialized|may not have written", str(error)), error  # noqa: PT017
            missed += 1
        else:
            template.check(dtype, arguments, got)
    assert missed


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
            run_gpu(_with_ir(kernel, ir[: guard.start()] + always + ir[guard.end() :]), arguments, timeout=2)
        except EmulationError as error:
            outside += "out of bounds" in str(error)
    assert outside
