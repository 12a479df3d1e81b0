"""Aligned memory: workspaces that are used again, constants, and what outputs are made of."""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

import numpy as np

from kcache_grpc.errors import ResourceExhausted
from kcache_grpc.runtime.cpu._abi import CData, ffi

#: What the ABI promises for outputs and workspace, in bytes; constants get it for speed.
ALIGNMENT = 64
_BYTE = np.dtype(np.uint8)
_ADDRESS = ffi.typeof("uintptr_t")

Array = np.ndarray[Any, np.dtype[Any]]


class AlignedBytes:
    """``size`` bytes from an aligned ``address``; ``array`` at ``offset`` keeps them alive."""

    __slots__ = ("address", "array", "offset", "pointer", "size")

    def __init__(self, size: int) -> None:
        try:
            self.array: np.ndarray[Any, np.dtype[np.uint8]] = np.empty(size + ALIGNMENT, _BYTE)
        except (MemoryError, ValueError) as error:
            raise ResourceExhausted(f"no memory for a buffer of {size} bytes", limit="memory") from error
        start = ffi.from_buffer(self.array)
        address = int(ffi.cast(_ADDRESS, start))
        self.offset = -address % ALIGNMENT
        self.address = address + self.offset
        self.pointer: CData = start + self.offset
        self.size = size


def aligned_copy(content: bytes) -> AlignedBytes:
    """The same bytes at an aligned address."""
    copy = AlignedBytes(len(content))
    end = copy.offset + len(content)
    copy.array[copy.offset : end] = np.frombuffer(content, _BYTE)
    return copy


class Workspaces:
    """Buffers that calls borrow: as many as calls ran at once, each as large as the largest need so far.

    A buffer is nobody's but its borrower's, also when a signal handler calls a kernel inside a call.
    """

    def __init__(self) -> None:
        self._free: deque[AlignedBytes] = deque()

    def borrow(self, size: int) -> AlignedBytes:
        """At least ``size`` bytes with undefined contents, until given back."""
        try:
            buffer = self._free.pop()
        except IndexError:
            return AlignedBytes(size)
        return buffer if buffer.size >= size else AlignedBytes(size)

    def give_back(self, buffer: AlignedBytes) -> None:
        """For the next call."""
        self._free.append(buffer)


@lru_cache(maxsize=1)
def shared_workspaces() -> Workspaces:
    """The workspaces of this process."""
    return Workspaces()
