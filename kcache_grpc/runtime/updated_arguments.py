"""Arguments that a program updates in place: its new values are results, which are copied to them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from kcache_grpc.runtime.arrays import is_torch
from kcache_grpc.runtime.cpu.memory import Array


def not_writable(array: Any) -> str:
    """Why nothing can be written to an argument; empty where it can."""
    if is_torch(array):
        return "it is an inference tensor: pass x.clone()" if _is_protected(array) else ""
    if isinstance(array, np.ndarray):
        return "" if array.flags.writeable else "it is read-only: pass x.copy()"
    return f"a {array.__class__.__name__} cannot be written to: pass a NumPy array or a PyTorch tensor"


def _is_protected(tensor: Any) -> bool:
    """Whether PyTorch lets only inference mode write to a tensor."""
    torch: Any = sys.modules["torch"]
    return bool(tensor.is_inference()) and not torch.is_inference_mode_enabled()


def addresses(array: Any) -> tuple[int, int]:
    """The addresses of an array's elements: the first, and the one behind. Of Python numbers none."""
    if is_torch(array):
        first = int(array.data_ptr())
        # Buffers may have any strides; the last element is at the end of all of them.
        last = sum((size - 1) * stride for size, stride in zip(array.shape, array.stride(), strict=True))
        return (first, first + (last + 1) * array.element_size()) if array.numel() else (0, 0)
    return _array_addresses(array) if isinstance(array, np.ndarray) else (0, 0)


def _array_addresses(array: Any) -> tuple[int, int]:
    bounds: tuple[int, int] = np.lib.array_utils.byte_bounds(array) if array.size else (0, 0)
    return bounds


def overlap(left: tuple[int, int], right: tuple[int, int]) -> bool:
    """Whether two ranges of addresses share memory."""
    return max(left[0], right[0]) < min(left[1], right[1])


def write(array: Any, result: Any) -> None:
    """Copy a result of the array's dtype and shape."""
    if is_torch(array):
        torch: Any = sys.modules["torch"]
        with torch.no_grad():
            array.copy_(result if is_torch(result) else _as_tensor(result, array))
    else:
        # As bytes: NumPy has no dtype for some of PyTorch's.
        _bytes_of(array)[...] = _bytes_of(_as_array(result))


def _bytes_of(array: Any) -> Array:
    view: Array = array.reshape(-1).view(np.uint8)
    return view


def _as_array(result: Any) -> Array:
    """A result in any framework as NumPy's array, of bytes where its dtype is PyTorch's alone."""
    if not is_torch(result):
        return np.asarray(result)
    torch: Any = sys.modules["torch"]
    content: Array = result.reshape(-1).view(torch.uint8).numpy()
    return content


def _as_tensor(result: Any, like: Any) -> Any:
    """A NumPy or JAX array as a tensor of its dtype and shape."""
    torch: Any = sys.modules["torch"]
    content = bytearray(np.asarray(result).tobytes())
    return torch.frombuffer(content, dtype=like.dtype).reshape(like.shape) if content else like
