"""Aligned memory: outputs that become the caller's own, workspaces that are used again, constants."""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kcache_grpc.errors import ResourceExhausted
from kcache_grpc.runtime._abi import CData, ffi

#: What the ABI promises for outputs and workspace, in bytes; constants get it for speed.
ALIGNMENT = 64
#: Small outputs are cut from pieces of one page: whoever keeps one keeps 4 KiB alive, never more.
_PAGE = 4096
_LARGEST_SMALL = _PAGE // 4

_BYTE = np.dtype(np.uint8)
_ADDRESS = ffi.typeof("uintptr_t")

Array = NDArray[Any]


class AlignedBytes:
    """``size`` bytes from an aligned address; ``array`` at ``offset`` keeps them alive."""

    __slots__ = ("array", "offset", "pointer", "size")

    def __init__(self, size: int) -> None:
        try:
            self.array: NDArray[np.uint8] = np.empty(size + ALIGNMENT, _BYTE)
        except (MemoryError, ValueError) as error:
            raise ResourceExhausted(f"no memory for a buffer of {size} bytes", limit="memory") from error
        start = ffi.from_buffer(self.array)
        self.offset = -int(ffi.cast(_ADDRESS, start)) % ALIGNMENT
        self.pointer: CData = start + self.offset
        self.size = size


def aligned_copy(content: bytes) -> AlignedBytes:
    """The same bytes at an aligned address."""
    copy = AlignedBytes(len(content))
    end = copy.offset + len(content)
    copy.array[copy.offset : end] = np.frombuffer(content, _BYTE)
    return copy


class Outputs:
    """Makes sets of output arrays with the tail of the kernel's buffer list that belongs to each.

    ``take`` is safe from many threads at once, and no two sets share memory.
    """

    def __init__(self, layout: list[tuple[np.dtype[Any], tuple[int, ...]]], constants: list[CData]) -> None:
        self._layout = layout
        self._constants = constants
        self._offsets: list[int] = []
        end = 0
        for dtype, shape in layout:
            self._offsets.append(end)
            end += -(-_bytes_of(dtype, shape) // ALIGNMENT) * ALIGNMENT
        self._size = end
        self._ready: deque[tuple[tuple[Array, ...], list[CData]]] = deque()

    def take(self) -> tuple[tuple[Array, ...], list[CData]]:
        """Fresh arrays, and pointers to the constants and to them."""
        try:
            return self._ready.pop()
        except IndexError:
            return self._refill()

    def _refill(self) -> tuple[tuple[Array, ...], list[CData]]:
        if self._size > _LARGEST_SMALL:
            return self._large()
        step = max(self._size, ALIGNMENT)
        memory = AlignedBytes(_PAGE // step * step)
        sets = [self._cut([memory] * len(self._layout), start) for start in range(0, memory.size, step)]
        self._ready.extend(sets[1:])
        return sets[0]

    def _large(self) -> tuple[tuple[Array, ...], list[CData]]:
        """An allocation each: one that is dropped gives its memory back alone."""
        sizes = [max(_bytes_of(dtype, shape), 1) for dtype, shape in self._layout]
        memories = [AlignedBytes(size) for size in sizes]
        return self._cut(memories, None)

    def _cut(self, memories: list[AlignedBytes], start: int | None) -> tuple[tuple[Array, ...], list[CData]]:
        arrays: list[Array] = []
        pointers = list(self._constants)
        for (dtype, shape), memory, offset in zip(self._layout, memories, self._offsets, strict=True):
            at = 0 if start is None else start + offset
            arrays.append(np.ndarray(shape, dtype, memory.array, memory.offset + at))
            pointers.append(memory.pointer + at)
        return tuple(arrays), pointers


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


def _bytes_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    size = dtype.itemsize
    for dim in shape:
        size *= dim
    return size
