"""Arguments in the memory of a GPU: PyTorch tensors, CuPy and JAX arrays, anything with DLPack.

Each is read in place, or rejected with a text that says what to do.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from kcache_grpc.runtime import dlpack
from kcache_grpc.runtime.arrays import RejectedArgument, is_torch, row_major, torch_address
from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.dtypes import names_of_torch

#: Of inputs and constants, in bytes: kernels load this many at once (docs/reference/gpu-abi.md).
INPUT_ALIGNMENT = 16
_ADDRESS = ffi.typeof("uintptr_t")


class DeviceBuffer(NamedTuple):
    """One argument as the kernel sees it; ``owner`` keeps the memory for the call."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    owner: object


def device_of(value: Any) -> int:
    """The number of the GPU whose memory holds an argument. Raises ``RejectedArgument`` where none does."""
    if is_torch(value):
        if value.device.type != "cuda":
            raise RejectedArgument(f"it is on {value.device}, and the kernel runs on a GPU; pass x.cuda()")
        return int(value.device.index)
    if isinstance(value, (np.ndarray, np.generic)):
        raise RejectedArgument(
            "it is a NumPy array, and the kernel runs on a GPU; pass torch.from_numpy(x).cuda()"
        )
    if hasattr(value, "__dlpack_device__"):
        try:
            kind, number = dlpack.device_of(value)
        except Exception as error:  # code of other projects, a JAX tracer's among it
            raise RejectedArgument(f"its __dlpack_device__ failed: {error}") from error
        if kind != dlpack.CUDA:
            raise RejectedArgument(
                f"it is on {dlpack.device_name(kind, number)}, and the kernel runs on a GPU"
            )
        return number
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    raise RejectedArgument(f"got a {name}; pass a tensor or array in the memory of a GPU")


def read(value: Any, stream: int) -> DeviceBuffer:
    """An argument for use on ``stream``, which waits for what its framework still computes of it."""
    buffer = _from_torch(value, stream) if is_torch(value) else _from_others(value, stream)
    if buffer.pointer % INPUT_ALIGNMENT and 0 not in buffer.shape:
        raise RejectedArgument(
            f"it is a view that is not aligned to {INPUT_ALIGNMENT} bytes; pass a copy, x.clone()"
        )
    return buffer


def _from_torch(tensor: Any, stream: int) -> DeviceBuffer:
    address = torch_address(tensor)
    cuda: Any = sys.modules["torch"].cuda
    if stream != cuda.current_stream(tensor.device).cuda_stream:
        tensor.detach().__dlpack__(stream=stream or 1)  # lets the stream wait for PyTorch's own
    dtype = names_of_torch().get(tensor.dtype, str(tensor.dtype))
    return DeviceBuffer(address, dtype, tuple(tensor.shape), tensor)


def _from_others(value: Any, stream: int) -> DeviceBuffer:
    try:
        view = dlpack.read_cuda(value, stream)
    except Exception as error:  # code of other projects
        raise RejectedArgument(f"its __dlpack__ failed: {error}") from error
    if not row_major(view.shape, view.strides):
        raise RejectedArgument("it is not row-major contiguous; pass a contiguous copy")
    return DeviceBuffer(int(ffi.cast(_ADDRESS, view.pointer)), view.dtype, view.shape, view.owner)
