"""The GPU benchmark: its programs compile, and without a GPU it says so and measures nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from kcache_grpc.errors import ArgumentError
from kcache_grpc.runtime.gpu.driver import open_driver


def test_without_a_gpu_nothing_is_measured() -> None:
    try:
        open_driver()
    except ArgumentError:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu"], capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 1
        assert done.stdout == ""
        assert "no GPU: nothing was measured" in done.stderr
        return
    pytest.skip("this machine has a GPU")


def test_every_case_is_a_program_that_compiles() -> None:
    pytest.importorskip("torch")
    from benchmarks.gpu.cases import cases

    suite = cases()
    assert len({case.name for case in suite}) == len(suite)
    for case in suite[::4]:
        kernel = lower_module(case.program, len(case.shapes), "sm_90", CompileOptions(), lambda _: None)
        assert kernel.interface.gpu_launches
        assert len(kernel.interface.inputs) == len(case.shapes)
