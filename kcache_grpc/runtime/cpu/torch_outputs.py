"""New CPU tensors of PyTorch for the outputs of kernels.

None is a view of another tensor: PyTorch does not let views that a ``torch.autograd.Function`` returns be
updated in place.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime.cpu.fast_call import Maker
from kcache_grpc.runtime.cpu.memory import ALIGNMENT
from kcache_grpc.runtime.cpu.recycled_memory import recycled_outputs, rounded
from kcache_grpc.runtime.dtypes import torch_dtypes

#: Bytes from which an output's memory is used again: fresh pages cost more than the bookkeeping.
_RECYCLED = 1 << 20
_BYTE = np.dtype(np.uint8)


def tensor_makers(outputs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]]) -> tuple[Maker, ...]:
    """For each output what makes a tensor, nearly always at an address that the ABI asks for.

    Large ones are in memory that earlier outputs had; ``resize_`` cannot enlarge them. Raises
    ``ArgumentError`` for a dtype that PyTorch lacks.
    """
    empty = empty_function()
    return tuple(_maker(spec.dtype, shape, empty) for spec, shape in zip(outputs, shapes, strict=True))


def _maker(dtype: str, shape: tuple[int, ...], empty: Callable[..., Any]) -> Maker:
    theirs = torch_dtypes().get(dtype)
    if theirs is None:
        raise ArgumentError(
            f"this PyTorch has no dtype for the output {dtype}; call the kernel with NumPy arrays"
        )
    size = math.prod(shape) * theirs.itemsize
    return recycled_tensor if size >= _RECYCLED else empty, (shape, _row_major(shape), theirs)


def empty_function() -> Callable[..., Any]:
    """What makes an uninitialized CPU tensor of a shape, strides and a dtype.

    The function that Inductor's code calls costs half of ``torch.empty_strided``; it is private to PyTorch.
    """
    try:
        return importlib.import_module("torch._C._dynamo.guards")._empty_strided_cpu
    except (ImportError, AttributeError):
        return public_empty


def public_empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
    """An uninitialized CPU tensor."""
    return _torch().empty_strided(shape, strides, dtype=dtype, device="cpu")


def recycled_tensor(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
    """An uninitialized CPU tensor in memory that an earlier one had."""
    torch, size = _torch(), math.prod(shape) * dtype.itemsize
    memory, _ = recycled_outputs().array(_BYTE, (size,), rounded(size))
    return _over(torch.from_numpy(memory), 0, shape, strides, dtype)


def aligned_tensor(tensor: Any) -> Any:
    """A tensor like ``tensor`` at an address that the ABI asks for; itself if its own is one."""
    if not tensor.data_ptr() % ALIGNMENT:
        return tensor
    torch, size = _torch(), tensor.numel() * tensor.element_size()
    memory = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device="cpu")
    start = -memory.data_ptr() % ALIGNMENT // tensor.element_size()
    return _over(memory, start, tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _over(memory: Any, start: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
    """A tensor over the storage of ``memory``, from an element on."""
    tensor = _torch().empty(0, dtype=dtype, device="cpu")
    return tensor.set_(memory.untyped_storage(), start, shape, strides)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides in elements of a contiguous tensor."""
    strides, step = list[int](), 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _torch() -> Any:
    return sys.modules["torch"]
