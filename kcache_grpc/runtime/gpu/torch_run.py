"""Runs of a plan on tensors of PyTorch in the memory of a GPU that were checked before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from kcache_grpc.runtime.dtypes import torch_dtypes
from kcache_grpc.runtime.gpu.arrays import INPUT_ALIGNMENT
from kcache_grpc.runtime.gpu.driver import Handle
from kcache_grpc.runtime.gpu.plan import Plan

_ODD = INPUT_ALIGNMENT - 1


def run_on_gpu(
    plan: Plan, place: Any, stream_of: Callable[[], Handle]
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that puts the launches of ``plan`` on the stream that ``stream_of`` returns.

    It takes contiguous tensors of the dtypes and shapes of ``plan`` in ``place``, a ``torch.device``, copies
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
        outputs = [empty(shape, dtype=dtype, device=place) for shape, dtype in layouts]
        buffers = [*addresses, *constants, *map(address_of, outputs)]
        # Given back to PyTorch's pool at the end of the call, for what comes after on this stream.
        scratch = empty(workspace_bytes, dtype=uint8, device=place) if workspace_bytes else None
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
