"""Outputs in the framework of the arguments."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime._abi import CData, ffi
from kcache_grpc.runtime.dtypes import torch_dtypes
from kcache_grpc.runtime.memory import ALIGNMENT, Array
from kcache_grpc.runtime.recycled import recycled_outputs, rounded

_VOID = ffi.typeof("void *")
#: Bytes from which an output's memory is used again: fresh pages cost more than the bookkeeping.
_RECYCLED = 1 << 20
_BYTE = np.dtype(np.uint8)


def torch_outputs(
    outputs: tuple[TensorSpec, ...], shapes: tuple[tuple[int, ...], ...]
) -> list[tuple[Any, CData]]:
    """New CPU tensors with their addresses."""
    return [_torch_empty(spec.dtype, shape) for spec, shape in zip(outputs, shapes, strict=True)]


def _torch_empty(dtype: str, shape: tuple[int, ...]) -> tuple[Any, CData]:
    torch: Any = sys.modules["torch"]
    theirs = torch_dtypes().get(dtype)
    if theirs is None:
        raise ArgumentError(
            f"this PyTorch has no dtype for the output {dtype}; call the kernel with NumPy arrays"
        )
    size = math.prod(shape) * theirs.itemsize
    if size >= _RECYCLED:
        raw, pointer = recycled_outputs().array(_BYTE, (size,), rounded(size))
        return torch.from_numpy(raw).view(theirs).view(shape), pointer
    tensor = torch.empty(shape, dtype=theirs, device="cpu")
    address = tensor.data_ptr()
    if address % ALIGNMENT:
        size = tensor.numel() * tensor.element_size()
        raw = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device="cpu")
        offset = -raw.data_ptr() % ALIGNMENT
        tensor = raw[offset : offset + size].view(theirs).view(shape)
        address = tensor.data_ptr()
    return tensor, ffi.cast(_VOID, address)


def in_namespace_of(like: Any, outputs: tuple[Array, ...]) -> tuple[Any, ...]:
    """The same results as arrays of ``like``'s framework (the array API standard's ``from_dlpack``)."""
    namespace = like.__array_namespace__()
    return tuple(_adopt(namespace, output) for output in outputs)


def _adopt(namespace: Any, output: Array) -> Any:
    try:
        return namespace.from_dlpack(output)
    except (BufferError, RuntimeError, TypeError, ValueError):  # NumPy cannot export bfloat16
        return namespace.asarray(output)
