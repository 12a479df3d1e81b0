"""Runs of a plan on CPU tensors that were checked before: addresses in, new tensors out."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.cpu.fast_call import Maker, TensorKind
from kcache_grpc.runtime.cpu.memory import ALIGNMENT
from kcache_grpc.runtime.cpu.plan import Plan
from kcache_grpc.runtime.cpu.torch_outputs import aligned_tensor, tensor_makers
from kcache_grpc.runtime.dtypes import numpy_dtype

_ADDRESS = ffi.typeof("uintptr_t")
_POINTERS = ffi.typeof("void *[]")

_and: Callable[[int, int], int] = int.__and__
_or: Callable[[int, int], int] = int.__or__

#: Tensors in, outputs out, at one tuple of sizes.
Run = Callable[[Sequence[Any]], tuple[Any, ...]]


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


def _torch() -> Any:
    return sys.modules["torch"]
