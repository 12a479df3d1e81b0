"""A kernel at given sizes: all that a call needs and that does not depend on the arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError
from kcache_grpc.model.expression import evaluate
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.runtime._abi import CData, Library, ffi
from kcache_grpc.runtime.dtypes import numpy_dtype
from kcache_grpc.runtime.library import error_of
from kcache_grpc.runtime.memory import Array, Outputs, Workspaces
from kcache_grpc.runtime.threads import HOST_FAILED, HostThreads

_MAX_BYTES = 1 << 62
#: Under flush-to-zero or denormals-are-zero their product is 0.
_SUBNORMAL, _ONE = 5e-324, 1.0

Sizes = tuple[tuple[int, ...], ...]


class Plan:
    """Output shapes, ``dims``, workspace and threads of one kernel at one tuple of input shapes.

    Safe from many threads at once.
    """

    __slots__ = (
        "_dims",
        "_host",
        "_manifest",
        "_outputs",
        "_run",
        "_strict",
        "_threads",
        "_workspace_bytes",
        "_workspaces",
        "checks",
        "output_shapes",
    )

    def __init__(
        self,
        manifest: Manifest,
        library: Library,
        shapes: Sizes,
        constants: list[CData],
        threads: HostThreads,
        workspaces: Workspaces,
    ) -> None:
        symbols = {symbol.name: shapes[symbol.arg][symbol.axis] for symbol in manifest.symbols}
        workers = _workers(manifest, symbols, threads.workers)
        self.output_shapes = tuple(_shape(output.dims, symbols) for output in manifest.outputs)
        #: What a NumPy argument must be for the short way: (dtype, shape) each.
        self.checks = tuple(
            (numpy_dtype(spec.dtype), shape) for spec, shape in zip(manifest.inputs, shapes, strict=True)
        )
        dtypes = [numpy_dtype(output.dtype) for output in manifest.outputs]
        _require_addressable(dtypes, self.output_shapes)
        self._outputs = Outputs(list(zip(dtypes, self.output_shapes, strict=True)), constants)
        self._dims = ffi.new("int64_t[]", list(symbols.values())) if symbols else ffi.NULL
        self._workspace_bytes = evaluate(manifest.workspace_bytes, {**symbols, "workers": workers})
        self._workspaces = workspaces
        self._threads = threads
        self._host = threads.host(workers) if workers > 1 else ffi.NULL
        self._strict = manifest.options.numerics == "strict"
        self._manifest = manifest
        self._run: Callable[..., int] = library.kcache_run

    def call_numpy(self, inputs: list[CData]) -> tuple[Array, ...]:
        """Run on these input buffers; fresh NumPy arrays come back."""
        arrays, tail = self._outputs.take()
        self.call([*inputs, *tail])
        return arrays

    def call(self, buffers: list[CData]) -> None:
        """Run on all buffers: inputs, constants, outputs. Raises ``KcacheError`` for a result but 0."""
        if self._strict and _SUBNORMAL * _ONE == 0.0:
            raise _flushes()
        if not self._workspace_bytes:
            code = self._run(buffers, self._dims, ffi.NULL, self._host)
        else:
            workspace = self._workspaces.borrow(self._workspace_bytes)
            code = self._run(buffers, self._dims, workspace.pointer, self._host)
            self._workspaces.give_back(workspace)
        if code:
            raise self._error(code)

    def _error(self, code: int) -> BaseException:
        failure = self._threads.failure() if code == HOST_FAILED else None
        return failure or error_of(self._manifest, code)


def _flushes() -> KcacheError:
    return KcacheError(
        "this thread flushes subnormal numbers to zero, and the kernel was compiled with numerics 'strict'; "
        "switch that off (torch.set_flush_denormal(False)), or compile with numerics 'default'"
    )


def _workers(manifest: Manifest, symbols: dict[str, int], most: int) -> int:
    """How many workers some launch can use: 1 spares the kernel the question and workspace for others."""
    useful = 1
    for launch in manifest.launches:
        extent, grain = evaluate(launch.extent, symbols), evaluate(launch.grain, symbols)
        useful = max(useful, extent // max(grain, 1))
    return min(useful, most)


def _shape(dims: tuple[str, ...], symbols: dict[str, int]) -> tuple[int, ...]:
    shape = tuple(evaluate(dim, symbols) for dim in dims)
    if min(shape, default=0) < 0:
        raise IntegrityError(f"an output of shape {shape}: its manifest is wrong")
    return shape


def _require_addressable(dtypes: list[np.dtype[Any]], shapes: Sizes) -> None:
    for dtype, shape in zip(dtypes, shapes, strict=True):
        size = dtype.itemsize
        for dim in shape:
            size *= dim
        if size > _MAX_BYTES:
            raise ArgumentError(f"these sizes make an output of {size} bytes")
