"""Runs of a plan on CPU tensors that were checked before: addresses in, new tensors out.

No output is a view of another tensor: PyTorch does not let views that a ``torch.autograd.Function`` returns
be updated in place.
"""

from __future__ import annotations

import importlib
import math
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.cpu.fast_call import Maker, TensorKind
from kcache_grpc.runtime.cpu.memory import ALIGNMENT
from kcache_grpc.runtime.cpu.plan import Plan
from kcache_grpc.runtime.cpu.recycled_memory import recycled_outputs, rounded
from kcache_grpc.runtime.dtypes import numpy_dtype, torch_dtypes

#: Bytes from which an output's memory is used again: fresh pages cost more than the bookkeeping.
_RECYCLED = 1 << 20
_BYTE = np.dtype(np.uint8)
_ADDRESS = ffi.typeof("uintptr_t")
_POINTERS = ffi.typeof("void *[]")
_and: Callable[[int, int], int] = int.__and__
_or: Callable[[int, int], int] = int.__or__
#: Tensors in, outputs out, at one tuple of sizes.
Run = Callable[[Sequence[Any]], tuple[Any, ...]]


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


def run_on_cpu(plan: Plan) -> Run:
    """A function that runs ``plan`` on tensors of its dtypes and shapes, contiguous, on the CPU."""
    masks = _alignment_masks(plan.manifest.inputs)
    makers = tensor_makers(plan.manifest.outputs, plan.output_shapes)
    general = _through_cffi(plan, masks, makers)
    tensor_class = _torch().Tensor
    call = plan.tensor_call(TensorKind(tensor_class, tensor_class().data_ptr), masks, makers)
    return general if call is None else _through_extension(plan, call, general)


def _through_extension(plan: Plan, call: Callable[[Sequence[Any], int], Any], general: Run) -> Run:
    """Calls by the extension module; ``general`` copies what is not aligned, and raises errors."""
    size, workspaces = plan.workspace_bytes, plan.workspaces

    def run(tensors: Sequence[Any]) -> tuple[Any, ...]:
        outputs = call(tensors, 0)
        return outputs if outputs.__class__ is tuple else otherwise(tensors, outputs)

    def run_with_workspace(tensors: Sequence[Any]) -> tuple[Any, ...]:
        workspace = workspaces.borrow(size)
        outputs = call(tensors, workspace.address)
        workspaces.give_back(workspace)
        return outputs if outputs.__class__ is tuple else otherwise(tensors, outputs)

    def otherwise(tensors: Sequence[Any], code: int | None) -> tuple[Any, ...]:
        if code is not None:
            raise plan.error(code)
        return general(tensors)

    return run_with_workspace if size else run


def _through_cffi(plan: Plan, masks: tuple[int, ...], makers: tuple[Maker, ...]) -> Run:
    address_of: Callable[[Any], int] = _torch().Tensor.data_ptr
    widest, call = reduce(_or, masks, 0), plan.call
    constants = [int(ffi.cast(_ADDRESS, pointer)) for pointer in plan.constants]

    def run(tensors: Sequence[Any]) -> tuple[Any, ...]:
        addresses = list(map(address_of, tensors))
        if reduce(_or, addresses, 0) & widest and any(map(_and, addresses, masks)):
            tensors = _aligned(tensors, masks)
            addresses = list(map(address_of, tensors))
        outputs = [make(*arguments) for make, arguments in makers]
        results = [output.data_ptr() for output in outputs]
        if reduce(_or, results, 0) & (ALIGNMENT - 1):
            outputs = [aligned_tensor(output) for output in outputs]
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


def _aligned(tensors: Sequence[Any], masks: Sequence[int]) -> list[Any]:
    """The tensors, those whose elements are not aligned as copies."""
    pairs = zip(tensors, masks, strict=True)
    return [tensor.clone() if tensor.data_ptr() & mask else tensor for tensor, mask in pairs]
