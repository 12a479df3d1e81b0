"""Calls with NumPy arrays through the extension module ``_fastcall``.

The module checks the arrays, runs the kernel and returns the outputs without Python code in between. An
installation may lack it (docs/internals/packaging.md); calls then go through cffi.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kcache_grpc.runtime.cpu._abi import CData, Library, ffi
from kcache_grpc.runtime.cpu.outputs import Outputs

if TYPE_CHECKING:
    from kcache_grpc.runtime._fastcall import FastCall

#: ``INTERFACE`` of ``_fastcall.c`` that this module calls: a build of other sources is not used.
_INTERFACE = 1
_ADDRESS = ffi.typeof("uintptr_t")


class Extension(NamedTuple):
    """What is used of the extension module."""

    call_type: type[FastCall]
    #: Inputs, constants and outputs of a call.
    max_buffers: int
    #: Bytes of workspace, which is on the stack.
    max_workspace: int


@lru_cache(maxsize=1)
def extension() -> Extension | None:
    """The extension module; None if it is not installed, or built from other sources."""
    try:
        from kcache_grpc.runtime import _fastcall
    except ImportError:
        return None
    if _fastcall.INTERFACE != _INTERFACE:
        return None
    return Extension(_fastcall.FastCall, _fastcall.MAX_BUFFERS, _fastcall.MAX_WORKSPACE)


def fast_call(
    library: Library,
    inputs: Sequence[tuple[np.dtype[Any], tuple[int, ...]]],
    outputs: Outputs,
    constants: Sequence[CData],
    dims: CData,
    host: CData,
    *,
    workspace: int,
    strict: bool,
    keep: object,
) -> Callable[[tuple[Any, ...]], tuple[Any, ...] | None] | None:
    """A function of a tuple of arrays that returns the kernel's outputs.

    It returns None for arrays that are not ``numpy.ndarray`` of exactly these dtypes and shapes, contiguous
    and aligned, and if the kernel returns a code. Of a ``strict`` kernel it returns None in threads that
    flush subnormal numbers. ``keep`` is kept alive with ``library``, ``constants``, ``dims`` and ``host``.

    Returns None if the extension module is not installed, or if the kernel has more buffers or a larger
    ``workspace`` than it supports.
    """
    module = extension()
    count = len(inputs) + len(constants) + outputs.count
    if module is None or count > module.max_buffers or workspace > module.max_workspace:
        return None
    call = module.call_type(
        run=_address(library.kcache_run),
        dims=_address(dims),
        host=_address(host),
        workspace=workspace,
        strict=strict,
        array_class=np.ndarray,
        inputs=tuple((dtype, dtype.alignment, shape) for dtype, shape in inputs),
        constants=tuple(map(_address, constants)),
        outputs=outputs.count,
        allocate=outputs.take_addressed,
        keep=(library, tuple(constants), dims, host, keep),
    )
    return call.call


def _address(pointer: Any) -> int:
    return int(ffi.cast(_ADDRESS, pointer))
