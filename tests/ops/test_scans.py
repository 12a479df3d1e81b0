"""Windows that are scans take linear work, and give what the reference interpreter gives."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from kcache_compiler.compile import lower_module, lower_until
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel, threaded_host
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.reference import ReferenceInterpreter
from tests.ops.harness.scan_programs import Window, others, scans
from tests.ops.harness.values import COMPLEX, FLOATS, generator, random_bytes

TARGET = "x86-64-v3"


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceInterpreter]:
    interpreter = ReferenceInterpreter()
    yield interpreter
    interpreter.close()


def _inputs(window: Window) -> list[bytes]:
    rng = generator("scan", window.op, window.dtype, window.shape)
    return [random_bytes(rng, window.dtype, math.prod(window.shape), "any")]


def _name(window: Window) -> str:
    way = "backward" if window.backward else "forward"
    return f"{window.op}-{window.dtype}-{'x'.join(map(str, window.shape))}-{window.axis}-{way}"


@pytest.mark.sampled(72)
@pytest.mark.parametrize("window", [*scans(), *others()], ids=_name)
def test_strict_scans_are_the_interpreters_to_the_bit(
    window: Window, reference: ReferenceInterpreter
) -> None:
    kernel = lower_module(window.text, 1, TARGET, CompileOptions(numerics="strict"), lambda _: None)
    inputs = _inputs(window)
    got, expected = run(kernel, inputs, []), reference.evaluate(window.text, inputs)
    ulps = 4.0 if window.dtype in COMPLEX and window.op == "multiply" else 0.0
    wrong = difference(window.dtype, got[0], expected[0], ulps)
    assert not wrong, f"{wrong}\n{window.text}"


def _is_scan(window: Window, numerics: str) -> bool:
    with lower_until(window.text, 1, TARGET, "fuse", CompileOptions(numerics=numerics)) as module:
        return not mlir.named(module, "tensor.pad")


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "window", [program for program in scans() if program.shape[program.axis] > 1], ids=_name
)
def test_scans_do_not_sum_every_window(window: Window) -> None:
    rounds = window.backward and window.dtype in FLOATS and window.op in ("add", "multiply")
    if window.dtype not in COMPLEX:
        assert _is_scan(window, "default")
        assert _is_scan(window, "strict") != rounds


@pytest.mark.parametrize("window", list(others()), ids=_name)
def test_windows_whose_start_or_size_counts_are_no_scans(window: Window) -> None:
    assert _is_scan(window, "default") == (window.op == "maximum")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((1, 40000), 1), ((40000,), 0), ((70, 900), 0), ((70, 900), 1)])
def test_long_scans_on_threads_agree_with_numpy(shape: tuple[int, ...], axis: int, backward: bool) -> None:
    window = Window("add", "f32", shape, axis, backward)
    kernel = Kernel(lower_module(window.text, 1, TARGET, CompileOptions(), lambda _: None))
    values = np.random.default_rng(0).random(shape, np.float32)
    flipped = np.flip(values, axis) if backward else values
    sums = np.cumsum(flipped.astype(np.float64), axis)
    expected = np.flip(sums, axis) if backward else sums
    alone = kernel(values)[0]
    np.testing.assert_allclose(alone, expected, rtol=2e-4)
    np.testing.assert_array_equal(kernel(values, host=threaded_host())[0], alone)
