"""The extension module ``_fastcall``, and calls with NumPy arrays through it.

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
    from kcache_grpc.runtime._fastcall import FastCall, TensorCall, TensorState

#: ``INTERFACE`` of ``_fastcall.c`` that this module calls: a build of other sources is not used.
_INTERFACE = 3
_ADDRESS = ffi.typeof("uintptr_t")


class Extension(NamedTuple):
    """What is used of the extension module."""

    call_type: type[FastCall]
    #: Inputs, constants and outputs of a call.
    max_buffers: int
    #: Bytes of workspace, which is on the stack.
    max_workspace: int
    tensor_call_type: type[TensorCall]
    tensor_state_type: type[TensorState]
    #: The address of a ``parallel_for`` on an OpenMP runtime's threads.
    openmp_parallel_for: int


class TensorKind(NamedTuple):
    """A framework's tensors."""

    tensor_class: type
    #: A tensor's method that returns the address of its elements.
    data_ptr: Callable[[], int]


#: A callable that returns a new, uninitialized tensor, and its arguments.
Maker = tuple[Callable[..., Any], tuple[Any, ...]]


@lru_cache(maxsize=1)
def extension() -> Extension | None:
    """The extension module; None if it is not installed, or built from other sources."""
    try:
        from kcache_grpc.runtime import _fastcall
    except ImportError:
        return None
    if _fastcall.INTERFACE != _INTERFACE:
        return None
    return described(_fastcall)


def described(module: Any) -> Extension:
    """What is used of an extension module."""
    return Extension(
        module.FastCall,
        module.MAX_BUFFERS,
        module.MAX_WORKSPACE,
        module.TensorCall,
        module.TensorState,
        module.OPENMP_PARALLEL_FOR,
    )


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


def tensor_call(
    library: Library,
    kind: TensorKind,
    masks: tuple[int, ...],
    constants: Sequence[CData],
    makers: tuple[Maker, ...],
    dims: CData,
    host: CData,
    *,
    strict: bool,
    keep: object,
) -> Callable[[Sequence[Any], int], Any] | None:
    """A function of a sequence of tensors and a workspace's address that returns the kernel's outputs.

    It returns the kernel's code if that is not 0. It returns None for another number of tensors, for what is
    no tensor, for tensors whose addresses have bits of ``masks``, and if an output is not aligned; of a
    ``strict`` kernel in threads that flush subnormal numbers, too. ``makers`` make the outputs.
    ``keep`` is kept alive with ``library``, ``dims`` and ``host``; the memory
    of ``constants`` is the caller's concern.

    Returns None if the extension module is not installed, or if ``kind.data_ptr`` is no method of C.
    """
    module = extension()
    if module is None:
        return None
    try:
        call = module.tensor_call_type(
            run=_address(library.kcache_run),
            dims=_address(dims),
            host=_address(host),
            strict=strict,
            tensor_class=kind.tensor_class,
            data_ptr=kind.data_ptr,
            masks=masks,
            constants=tuple(map(_address, constants)),
            makers=makers,
            keep=(library, dims, host, keep),
        )
    except TypeError:
        return None
    return call.call


def _address(pointer: Any) -> int:
    return int(ffi.cast(_ADDRESS, pointer))
