"""A kernel at given sizes: all that a call needs and that does not depend on the arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.sizes.expression import evaluate
from kcache_grpc.runtime.cpu._abi import CData, Library, ffi
from kcache_grpc.runtime.cpu.fast_call import Maker, TensorKind, fast_call, tensor_call
from kcache_grpc.runtime.cpu.library import SIZES_DISAGREE, error_of
from kcache_grpc.runtime.cpu.memory import Workspaces
from kcache_grpc.runtime.cpu.native_pool import NativeThreads
from kcache_grpc.runtime.cpu.outputs import Outputs
from kcache_grpc.runtime.cpu.recycled_memory import recycled_outputs
from kcache_grpc.runtime.cpu.threads import HOST_FAILED, HostThreads, TimedThreads
from kcache_grpc.runtime.dtypes import numpy_dtype

_MAX_BYTES = 1 << 62
#: Under flush-to-zero or denormals-are-zero their product is 0.
_SUBNORMAL, _ONE = 5e-324, 1.0
_NULL = ffi.NULL

Sizes = tuple[tuple[int, ...], ...]
#: Arguments in, results out; None when they need the long way.
Short = Callable[[tuple[Any, ...]], tuple[Any, ...] | None]


class Plan:
    """Output shapes, ``dims``, workspace and threads of one kernel at one tuple of input shapes.

    Safe from many threads at once.
    """

    __slots__ = (
        "_dims",
        "_host",
        "_library",
        "_run",
        "_shorts",
        "_symbols",
        "_threads",
        "constants",
        "input_shapes",
        "manifest",
        "output_shapes",
        "outputs",
        "strict",
        "workspace_bytes",
        "workspaces",
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
        workers = _workers(manifest, symbols, threads)
        self.manifest = manifest
        self.constants = constants
        self.input_shapes = shapes
        self.output_shapes = tuple(_shape(output.dims, symbols) for output in manifest.outputs)
        dtypes = [numpy_dtype(output.dtype) for output in manifest.outputs]
        _require_addressable(dtypes, self.output_shapes)
        layout = list(zip(dtypes, self.output_shapes, strict=True))
        self.outputs = Outputs(layout, constants, recycled_outputs())
        self._dims = ffi.new("int64_t[]", list(symbols.values())) if symbols else ffi.NULL
        self.workspace_bytes = evaluate(manifest.workspace_bytes, {**symbols, "workers": workers})
        if self.workspace_bytes < 0:  # as some buffer in it has: the kernel would reject such sizes
            raise error_of(manifest, SIZES_DISAGREE, symbols)
        self.workspaces = workspaces
        self._threads = threads
        self._host = threads.host(workers) if workers > 1 or isinstance(threads, TimedThreads) else ffi.NULL
        self._symbols = symbols
        self.strict = manifest.options.numerics == "strict"
        self._shorts: dict[str, Short] = {}
        self._library = library
        self._run: Callable[..., int] = library.kcache_run

    def short(self, framework: str, make: Callable[[Plan], Short]) -> Short:
        """The fast path for arrays of one framework, made once."""
        known = self._shorts.get(framework)
        return known or self._shorts.setdefault(framework, make(self))

    def fast_call(self) -> Short | None:
        """A call with NumPy arrays by the extension module; None without the module or its support."""
        if self._host != _NULL and not isinstance(self._threads, NativeThreads):
            return None
        dtypes = [numpy_dtype(spec.dtype) for spec in self.manifest.inputs]
        return fast_call(
            self._library,
            list(zip(dtypes, self.input_shapes, strict=True)),
            self.outputs,
            self.constants,
            self._dims,
            self._host,
            workspace=self.workspace_bytes,
            strict=self.strict,
            keep=self._threads,
        )

    def tensor_call(
        self, kind: TensorKind, masks: tuple[int, ...], makers: tuple[Maker, ...]
    ) -> Callable[[Sequence[Any], int], Any] | None:
        """A call with tensors by the extension module; None without the module or its support."""
        return tensor_call(
            self._library,
            kind,
            masks,
            self.constants,
            makers,
            self._dims,
            self._host,
            strict=self.strict,
            keep=self._threads,
        )

    @property
    def flushes(self) -> bool:
        """Whether this thread flushes subnormal numbers to zero, and the kernel must not."""
        return self.strict and flushes_subnormals()

    def call(self, buffers: list[CData] | CData) -> None:
        """Run on all buffers: inputs, constants, outputs.

        Raises ``ArgumentError`` when the kernel finds that sizes disagree, ``KcacheError`` for other codes.
        """
        if self.flushes:
            raise flushing_error()
        if not self.workspace_bytes:
            code = self._run(buffers, self._dims, _NULL, self._host)
        else:
            workspace = self.workspaces.borrow(self.workspace_bytes)
            code = self._run(buffers, self._dims, workspace.pointer, self._host)
            self.workspaces.give_back(workspace)
        if code:
            raise self.error(code)

    def error(self, code: int) -> BaseException:
        """What a call raises for a ``code`` that is not 0."""
        failure = self._threads.failure() if code == HOST_FAILED else None
        return failure or error_of(self.manifest, code, self._symbols)


def flushes_subnormals() -> bool:
    """Whether this thread flushes subnormal numbers to zero."""
    return _SUBNORMAL * _ONE == 0.0


def flushing_error() -> KcacheError:
    """What a call of a kernel of numerics ``strict`` raises in such a thread."""
    return KcacheError(
        "this thread flushes subnormal numbers to zero, and the kernel was compiled with numerics 'strict'; "
        "switch that off (torch.set_flush_denormal(False)), or compile with numerics 'default'"
    )


def _workers(manifest: Manifest, symbols: dict[str, int], threads: HostThreads) -> int:
    """How many workers some launch can use; 1 avoids ``parallel_for``, and workspace for other workers."""
    useful = 1
    for launch in manifest.launches:
        extent, grain = evaluate(launch.extent, symbols), evaluate(launch.grain, symbols)
        useful = max(useful, extent // max(grain, 1))
    return min(useful, threads.workers) if useful >= threads.least_slices else 1


def _shape(dims: tuple[str, ...], symbols: dict[str, int]) -> tuple[int, ...]:
    shape = tuple(evaluate(dim, symbols) for dim in dims)
    if min(shape, default=0) < 0 and symbols:
        raise ArgumentError(f"these sizes make an output of shape {shape}")
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
