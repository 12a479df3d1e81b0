"""One model through export, compile and call, compared with eager mode."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from kcache_compiler.errors import CompilerError
from kcache_grpc.errors import KcacheError
from tests.conformance.architectures.corpus import instantiate
from tests.conformance.torch_ops.harness.judge import kernel_of

#: Largest difference, relative to the largest number of the result, that counts as right for f32.
TOLERANCE = 1e-5


class Outcome(NamedTuple):
    """``how``: right, rejected, wrong, or constant: a result says nothing. ``apart``: the largest difference
    from eager mode.
    """

    name: str
    how: str
    why: str
    apart: float
    parameters: int
    export_s: float
    compile_s: float


class InProcess:
    """Compiles as a worker does, in this process."""

    def compile(self, exported: Any) -> Callable[..., tuple[Any, ...]]:
        """A function of the program's inputs. Raises ``CompilerError`` or ``KcacheError``."""
        kernel = kernel_of(exported)
        return lambda *inputs: tuple(torch.from_numpy(array) for array in kernel(inputs))


def outcome(client: Any, name: str) -> Outcome:
    """What becomes of a model; ``client`` is a ``kcache_grpc.Client`` or an ``InProcess``."""
    module, inputs = instantiate(name)
    count = sum(p.numel() for p in module.parameters())
    started = time.perf_counter()
    with torch.no_grad():
        expected = module(*inputs)
        exported = torch.export.export(module, inputs)
    between = time.perf_counter()
    try:
        kernel = client.compile(exported)
    except (KcacheError, CompilerError) as error:
        return Outcome(name, "rejected", str(error), 0.0, count, between - started, 0.0)
    compiled = time.perf_counter()
    expected = expected if isinstance(expected, tuple) else (expected,)
    if any(result.numel() > 1 and float(result.double().std()) == 0 for result in expected):
        return Outcome(name, "constant", "", 0.0, count, between - started, compiled - between)
    with torch.no_grad():
        results = kernel(*inputs)
    apart = [_apart(got, want) for got, want in zip(results, expected, strict=True)]
    worst = max(apart)
    how = "right" if worst <= TOLERANCE else "wrong"
    return Outcome(name, how, "", worst, count, between - started, compiled - between)


def _apart(got: Any, want: Any) -> float:
    if got.dtype != want.dtype or got.shape != want.shape or not bool(torch.isfinite(got).all()):
        return float("inf")
    scale = max(1.0, float(want.abs().max())) if want.dtype.is_floating_point else 1.0
    return float((got.double() - want.double()).abs().max()) / scale
