"""Outputs in the framework of the arguments."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.cpu.memory import ALIGNMENT, Array
from kcache_grpc.runtime.cpu.recycled_memory import recycled_outputs, rounded
from kcache_grpc.runtime.dtypes import torch_dtypes

_VOID = ffi.typeof("void *")
#: Bytes from which an output's memory is used again: fresh pages cost more than the bookkeeping.
_RECYCLED = 1 << 20
_BYTE = np.dtype(np.uint8)


#: Makes a tensor, and tells its address.
TorchMaker = Callable[[], tuple[Any, CData]]


def torch_makers(
    outputs: tuple[TensorSpec, ...], shapes: tuple[tuple[int, ...], ...]
) -> tuple[TorchMaker, ...]:
    """For each output what makes a CPU tensor. Raises ``ArgumentError`` for a dtype that PyTorch lacks."""
    return tuple(_torch_maker(spec.dtype, shape) for spec, shape in zip(outputs, shapes, strict=True))


def _torch_maker(dtype: str, shape: tuple[int, ...]) -> TorchMaker:
    torch: Any = sys.modules["torch"]
    theirs = torch_dtypes().get(dtype)
    if theirs is None:
        raise ArgumentError(
            f"this PyTorch has no dtype for the output {dtype}; call the kernel with NumPy arrays"
        )
    size = math.prod(shape) * theirs.itemsize
    empty, cast = torch.empty, ffi.cast

    def recycled() -> tuple[Any, CData]:
        raw, pointer = recycled_outputs().array(_BYTE, (size,), rounded(size))
        return torch.from_numpy(raw).view(theirs).view(shape), pointer

    def fresh() -> tuple[Any, CData]:
        tensor = empty(shape, dtype=theirs, device="cpu")
        address = tensor.data_ptr()
        return recycled() if address % ALIGNMENT else (tensor, cast(_VOID, address))

    return recycled if size >= _RECYCLED else fresh


def in_namespace_of(like: Any, outputs: tuple[Array, ...]) -> tuple[Any, ...]:
    """The same results as arrays of ``like``'s framework (the array API standard's ``from_dlpack``)."""
    namespace = like.__array_namespace__()
    return tuple(_adopt(namespace, output) for output in outputs)


def _adopt(namespace: Any, output: Array) -> Any:
    try:
        return namespace.from_dlpack(output)
    except (BufferError, RuntimeError, TypeError, ValueError):  # NumPy cannot export bfloat16
        return namespace.asarray(output)
