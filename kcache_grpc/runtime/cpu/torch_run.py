"""Runs of a plan on CPU tensors that were checked before: addresses in, new tensors out."""

from __future__ import annotations

import importlib
import operator
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.cpu.memory import ALIGNMENT
from kcache_grpc.runtime.cpu.plan import Plan
from kcache_grpc.runtime.dtypes import numpy_dtype, torch_dtypes

_ADDRESS = ffi.typeof("uintptr_t")
_POINTERS = ffi.typeof("void *[]")

_and: Callable[[int, int], int] = operator.and_
_or: Callable[[int, int], int] = operator.or_

#: Shape, strides and dtype of a new tensor.
Layout = tuple[tuple[int, ...], tuple[int, ...], Any]


def run_on_cpu(plan: Plan) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that runs ``plan`` on tensors of its dtypes and shapes, contiguous, on the CPU."""
    return _through_cffi(plan)


def _through_cffi(plan: Plan) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    address_of: Callable[[Any], int] = _torch().Tensor.data_ptr
    masks = _alignment_masks(plan.manifest.inputs)
    widest = reduce(_or, masks, 0)
    constants = [int(ffi.cast(_ADDRESS, pointer)) for pointer in plan.constants]
    layouts, empty, call = _layouts(plan), _empty_function(), plan.call

    def run(tensors: Sequence[Any]) -> tuple[Any, ...]:
        addresses = list(map(address_of, tensors))
        if reduce(_or, addresses, 0) & widest and any(map(_and, addresses, masks)):
            tensors = _aligned(tensors, masks)
            addresses = list(map(address_of, tensors))
        outputs = [empty(shape, strides, dtype) for shape, strides, dtype in layouts]
        results = [output.data_ptr() for output in outputs]
        if reduce(_or, results, 0) & (ALIGNMENT - 1):
            outputs = [_aligned_output(output) for output in outputs]
            results = [output.data_ptr() for output in outputs]
        buffers = array("Q", addresses)
        buffers.extend(constants)
        buffers.extend(results)
        call(ffi.from_buffer(_POINTERS, buffers))
        return tuple(outputs)

    return run


def _alignment_masks(inputs: Sequence[TensorSpec]) -> tuple[int, ...]:
    """For each input the bits of an address that are 0 where it is aligned to the dtype."""
    return tuple(numpy_dtype(spec.dtype).alignment - 1 for spec in inputs)


def _layouts(plan: Plan) -> list[Layout]:
    """The outputs of ``plan``."""
    dtypes = torch_dtypes()
    pairs = zip(plan.manifest.outputs, plan.output_shapes, strict=True)
    return [(shape, _row_major(shape), dtypes[spec.dtype]) for spec, shape in pairs]


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides in elements of a contiguous tensor."""
    strides, step = list[int](), 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _empty_function() -> Callable[[tuple[int, ...], tuple[int, ...], Any], Any]:
    """What makes an uninitialized CPU tensor of a shape, strides and a dtype.

    The function that Inductor's code calls costs half of ``torch.empty_strided``; it is private to PyTorch.
    """
    try:
        return importlib.import_module("torch._C._dynamo.guards")._empty_strided_cpu
    except (ImportError, AttributeError):
        empty = _torch().empty_strided
        return lambda shape, strides, dtype: empty(shape, strides, dtype=dtype, device="cpu")


def _aligned(tensors: Sequence[Any], masks: Sequence[int]) -> list[Any]:
    """The tensors, those whose elements are not aligned as copies."""
    pairs = zip(tensors, masks, strict=True)
    return [tensor.clone() if tensor.data_ptr() & mask else tensor for tensor, mask in pairs]


def _aligned_output(tensor: Any) -> Any:
    """A tensor like ``tensor`` at an address that the ABI asks for; itself if its own is one."""
    if not tensor.data_ptr() % ALIGNMENT:
        return tensor
    torch, size = _torch(), tensor.numel() * tensor.element_size()
    memory = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device="cpu")
    start = -memory.data_ptr() % ALIGNMENT
    return memory[start : start + size].view(tensor.dtype).view(tensor.shape)


def _torch() -> Any:
    return sys.modules["torch"]
