"""The fast path of a call on a GPU: arrays exactly as the last call's, checked in a few comparisons.

Anything else, right or wrong, takes the long way, which knows every framework and explains itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from kcache_grpc.runtime.arrays import is_torch
from kcache_grpc.runtime.cpu.plan import Short
from kcache_grpc.runtime.dtypes import torch_dtypes
from kcache_grpc.runtime.gpu.arrays import INPUT_ALIGNMENT
from kcache_grpc.runtime.gpu.device_memory import DeviceArray, size_of
from kcache_grpc.runtime.gpu.driver import Handle
from kcache_grpc.runtime.gpu.exporters import for_cupy, for_exporters
from kcache_grpc.runtime.gpu.plan import Plan
from kcache_grpc.runtime.gpu.streams import is_cupy

_ODD = INPUT_ALIGNMENT - 1


def nothing(_: tuple[Any, ...]) -> None:
    """There is no fast path."""
    return


def short_way(plan: Plan, arrays: tuple[Any, ...]) -> Short:
    """For calls like one with ``arrays``, which the plan served."""
    if arrays and all(array.__class__ is DeviceArray for array in arrays):
        return _for_device_arrays(plan)
    if arrays and is_torch(arrays[0]):
        torch: Any = sys.modules["torch"]
        ordinal = plan.device.ordinal
        return for_torch(plan, torch.device("cuda", ordinal), stream_of(ordinal))
    if arrays and is_cupy(arrays[0]):
        return for_cupy(plan) or nothing
    return for_exporters(plan, arrays) if arrays else nothing


def _for_device_arrays(plan: Plan) -> Short:
    """On the legacy default stream, on which they are made."""
    device, packed, workspace_bytes = plan.device, plan.packed, plan.workspace_bytes
    driver, ordinal, context = device.driver, device.ordinal, device.context
    checks = [
        (spec.dtype, shape) for spec, shape in zip(plan.manifest.inputs, plan.input_shapes, strict=True)
    ]
    outputs = [
        (spec.dtype, shape, size_of(spec.dtype, shape))
        for spec, shape in zip(plan.manifest.outputs, plan.output_shapes, strict=True)
    ]
    count, constants = len(checks), plan.constants

    def run(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if driver.current_context() == context:
            return inside(arrays)
        driver.push_context(context)
        try:
            return inside(arrays)
        finally:
            driver.pop_context()

    def inside(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Call the kernel for ``DeviceArray`` arguments; None if they differ from those of the first call."""
        if len(arrays) != count:
            return None
        pointers: list[Handle] = []
        for array, (dtype, shape) in zip(arrays, checks):  # noqa: B905 - of equal lengths; the hot loop
            if (
                array.__class__ is not DeviceArray
                or array.dtype != dtype
                or array.shape != shape
                or array.ordinal != ordinal
                or array.stream
                or array.pointer & _ODD
            ):
                return None
            pointers.append(array.pointer)
        results = [
            DeviceArray(driver, ordinal, 0, dtype, shape, context, size) for dtype, shape, size in outputs
        ]
        pointers += constants
        pointers += [array.pointer for array in results]
        if not workspace_bytes:
            packed.run(driver, 0, 0, pointers)
            return tuple(results)
        workspace = driver.allocate(workspace_bytes, 0)
        try:
            packed.run(driver, 0, workspace, pointers)
        finally:
            driver.free(workspace, 0)
        return tuple(results)

    return run


def for_torch(plan: Plan, torch_device: Any, stream_of: Callable[[], Handle]) -> Short:
    """For plain tensors without gradients on ``torch_device``, on the stream that ``stream_of`` returns."""
    torch: Any = sys.modules["torch"]
    device, packed, dtypes = plan.device, plan.packed, torch_dtypes()
    driver, context = device.driver, device.context
    checks = [
        (dtypes.get(spec.dtype), shape, spec.dtype.startswith("c"))
        for spec, shape in zip(plan.manifest.inputs, plan.input_shapes, strict=True)
    ]
    outputs = [
        (dtypes[spec.dtype], shape)
        for spec, shape in zip(plan.manifest.outputs, plan.output_shapes, strict=True)
    ]
    count, constants, workspace_bytes = len(checks), plan.constants, plan.workspace_bytes
    kind, strided, empty, uint8 = torch.Tensor, torch.strided, torch.empty, torch.uint8

    def run(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Call the kernel for tensors of PyTorch; None if they differ from those of the first call."""
        if len(arrays) != count or driver.current_context() != context:
            return None
        pointers: list[Handle] = []
        for tensor, (dtype, shape, is_complex) in zip(arrays, checks):  # noqa: B905 - as above
            if (
                tensor.__class__ is not kind
                or tensor.dtype is not dtype
                or tensor.shape != shape
                or tensor.device != torch_device
                or tensor.layout is not strided
                or tensor.requires_grad
                or not tensor.is_contiguous()
                or (is_complex and tensor.is_conj())
                or tensor.is_neg()
                or (address := tensor.data_ptr()) & _ODD
            ):
                return None
            pointers.append(address)
        tensors = [empty(shape, dtype=dtype, device=torch_device) for dtype, shape in outputs]
        pointers += constants
        pointers += [tensor.data_ptr() for tensor in tensors]
        # Given back to PyTorch's pool at the end of the call, for what comes after on this stream.
        scratch = empty(workspace_bytes, dtype=uint8, device=torch_device) if workspace_bytes else None
        packed.run(driver, stream_of(), 0 if scratch is None else scratch.data_ptr(), pointers)
        return tuple(tensors)

    return run


def run_on_gpu(
    plan: Plan, device: Any, stream_of: Callable[[], Handle]
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that puts the launches of ``plan`` on the stream that ``stream_of`` returns.

    It takes contiguous tensors of the dtypes and shapes of ``plan`` on ``device``, a ``torch.device``, copies
    those that are not aligned, and allocates outputs and workspace there. It waits for nothing, so that it
    can run while the stream is captured into a CUDA graph.
    """
    torch: Any = sys.modules["torch"]
    packed, driver, context = plan.packed, plan.device.driver, plan.device.context
    dtypes = torch_dtypes()
    pairs = zip(plan.manifest.outputs, plan.output_shapes, strict=True)
    layouts = [(shape, dtypes[spec.dtype]) for spec, shape in pairs]
    constants, workspace_bytes = plan.constants, plan.workspace_bytes
    empty, uint8 = torch.empty, torch.uint8
    address_of: Callable[[Any], int] = torch.Tensor.data_ptr

    def run(tensors: Sequence[Any]) -> tuple[Any, ...]:
        addresses = list(map(address_of, tensors))
        if any(address & _ODD for address in addresses):
            tensors = [tensor.clone() if tensor.data_ptr() & _ODD else tensor for tensor in tensors]
            addresses = list(map(address_of, tensors))
        outputs = [empty(shape, dtype=dtype, device=device) for shape, dtype in layouts]
        buffers = [*addresses, *constants, *map(address_of, outputs)]
        # Given back to PyTorch's pool at the end of the call, for what comes after on this stream.
        scratch = empty(workspace_bytes, dtype=uint8, device=device) if workspace_bytes else None
        with driver.within(context):
            packed.run(driver, stream_of(), 0 if scratch is None else scratch.data_ptr(), buffers)
        return tuple(outputs)

    return run


def stream_of(ordinal: int) -> Callable[[], Handle]:
    """What returns PyTorch's current stream of a device; without an object for it, where PyTorch can."""
    torch: Any = sys.modules["torch"]
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is None:
        return lambda: int(torch.cuda.current_stream(ordinal).cuda_stream)
    return lambda: raw(ordinal)
