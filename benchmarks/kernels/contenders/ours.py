"""kcache: JAX's StableHLO through the real client, from a server with warm workers."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np

import kcache_grpc as kcache
from benchmarks.kernels.case import Array, Case, aligned_empty, flat
from benchmarks.kernels.contenders import Absent, Built
from benchmarks.kernels.contenders.stopwatch import Stopwatch
from benchmarks.kernels.table.contractions import attended
from kcache_grpc.runtime.cpu._abi import ffi

NAME, READY = "kcache", "kcache, buffers ready"
REJECTED = "rejected"


class Ours:
    """Asks one server. ``build`` calls kernels as users do; ``build_ready`` calls the same code on buffers
    that are ready, which leaves the kernel alone.
    """

    def __init__(
        self, address: str, server: int, cache: Path, numerics: str = "default", target: str = "host"
    ) -> None:
        self._server = server
        self._client = kcache.Client(address, cache_dir=cache, strict=True, timeout=300)
        self._options, self._target = kcache.Options(numerics=numerics), target
        self._warm()

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def build(self, case: Case, inputs: list[Array]) -> Built:
        """Seconds to compile are from the request to the loaded kernel; those of processors, the server's."""
        began: list[tuple[str, float]] = []
        program = _program(case.jax, inputs)
        watch = Stopwatch(self._server)
        kernel = self._compile(program, lambda stage, seconds: began.append((stage, seconds)))
        kernel.load()
        wall, cpu = watch.read()
        call, launches = functools.partial(kernel, *inputs), len(kernel.manifest.launches)
        if kernel.origin != "compiled":
            return Built(call, flat, launches=launches)
        return Built(call, flat, wall, cpu, _spent(began, wall), launches)

    def build_ready(self, case: Case, inputs: list[Array]) -> Built:
        """After ``build``: asks the client's memory."""
        kernel = self._compile(_program(case.jax, inputs), None)
        outputs = [aligned_empty(array.shape, array.dtype) for array in map(np.asarray, kernel(*inputs))]
        [plan] = kernel._plans.values()  # what a call makes of these sizes, and what it then does
        buffers = [*map(_pointer, inputs), *plan.constants, *map(_pointer, outputs)]
        table = ffi.new("void *[]", buffers)
        kept = (table, buffers)
        return Built(lambda: plan.call(kept[0]), lambda _: outputs)

    def _compile(self, program: bytes, progress: Any) -> Any:
        try:
            return self._client.compile(
                program, target=self._target, options=self._options, on_progress=progress
            )
        except kcache.UnsupportedOp as error:
            raise Absent(f"{REJECTED}: {error}") from error

    def _warm(self) -> None:
        """A server in use: its workers have imported all, libraries of products and attention are there."""
        for size in (3, 5, 7, 9):
            ones = np.ones(size, np.float32)
            self._compile(_program(lambda x: x + x, [ones]), None)(ones)
        square, heads = np.ones((64, 64), np.float32), np.ones((1, 2, 32, 64), np.float32)
        self._compile(_program(lambda x: x @ x, [square]), None)(square)
        self._compile(_program(lambda x: attended(x, x, x, causal=False), [heads]), None)(heads)


def _program(function: Any, inputs: list[Array]) -> bytes:
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in inputs]
    return bytes(jax.export.export(jax.jit(function, keep_unused=True))(*shapes).mlir_module_serialized)


def _pointer(array: Array) -> Any:
    return ffi.cast("void *", array.ctypes.data)


def _spent(began: list[tuple[str, float]], total: float) -> dict[str, float]:
    ends = [moment for _, moment in began[1:]] + [total]
    spent: dict[str, float] = {}
    for (name, moment), end in zip(began, ends, strict=True):
        spent[name] = spent.get(name, 0.0) + end - moment
    return spent
