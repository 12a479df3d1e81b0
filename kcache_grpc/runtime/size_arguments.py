"""Arguments that a program has as integers, and its kernel as axes of these lengths without elements."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime.arrays import Buffer, RejectedArgument
from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.dtypes import numpy_dtype

_ADDRESS = ffi.typeof("uintptr_t")
#: The largest size: kernels read lengths of axes as 32-bit integers.
_MOST = 2**31 - 1


def as_axes(buffer: Buffer, spec: TensorSpec) -> Buffer:
    """The argument that the kernel takes for the integers in ``buffer``: ``7`` is of shape ``(7, 0)``.

    What has the kernel's rank already is left as it is. Raises ``RejectedArgument`` for numbers below 0 and
    above 2**31 - 1, and for as many as the kernel has no axes for.
    """
    count = len(spec.dims) - 1
    if len(buffer.shape) == len(spec.dims) and buffer.shape[-1] == 0:
        require_sizes(buffer.shape)
        return buffer
    if buffer.shape not in ((count,), *([()] if count == 1 else [])):
        raise RejectedArgument(f"got rank {len(buffer.shape)}, shape {buffer.shape}")
    if buffer.dtype != spec.dtype:
        return buffer
    kind = numpy_dtype(spec.dtype)
    content = ctypes.string_at(int(ffi.cast(_ADDRESS, buffer.pointer)), count * kind.itemsize)
    sizes: list[int] = np.frombuffer(content, kind).tolist()
    require_sizes(sizes)
    return Buffer(buffer.pointer, buffer.dtype, (*sizes, 0), buffer.owner)


def require_sizes(sizes: Sequence[int]) -> None:
    """Raise ``RejectedArgument`` unless all of ``sizes`` are sizes."""
    if min(sizes) < 0:
        raise RejectedArgument(f"got {min(sizes)}, and no size is below 0")
    if max(sizes) > _MOST:
        raise RejectedArgument(f"got {max(sizes)}, and no size is above {_MOST}")
