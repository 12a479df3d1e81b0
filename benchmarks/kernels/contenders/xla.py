"""JAX: ``jit`` on the CPU, called with arrays that lie on its device, waited for."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np

from benchmarks.kernels.case import Array, Case, flat
from benchmarks.kernels.contenders import Built
from benchmarks.kernels.contenders.stopwatch import Stopwatch

NAME = "JAX"


def build(case: Case, inputs: list[Array]) -> Built:
    """Seconds to compile are those of XLA alone: tracing and lowering came before."""
    arrays = [jax.device_put(array) for array in inputs]
    function = jax.jit(case.jax)
    lowered = function.lower(*arrays)
    watch = Stopwatch(os.getpid())
    lowered.compile()
    seconds = watch.read()
    ready = jax.block_until_ready
    return Built(lambda: ready(function(*arrays)), _read, *seconds)


def _read(outputs: Any) -> list[Array]:
    return [np.asarray(each) for each in flat(outputs)]


def flops(case: Case, inputs: list[Array]) -> float:
    """Floating-point operations of the function as XLA counts them, transcendental ones as one each."""
    cost = jax.jit(case.jax).lower(*inputs).cost_analysis() or {}
    return float(cost.get("flops", 0.0)) + float(cost.get("transcendentals", 0.0))
