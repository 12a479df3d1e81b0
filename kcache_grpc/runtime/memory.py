"""Aligned memory: outputs that become the caller's own, workspaces that are used again, constants."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
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


#: One call's output arrays, and the end of its buffer list: constants, then these arrays.
OutputSet = tuple[tuple[Array, ...], tuple[CData, ...]]


class Outputs:
    """Makes the output arrays of calls.

    ``take`` is safe from many threads at once, and no two sets share memory.
    """

    def __init__(self, layout: list[tuple[np.dtype[Any], tuple[int, ...]]], constants: list[CData]) -> None:
        self._layout = layout
        self._constants = constants
        self._sizes = [_bytes_of(dtype, shape) for dtype, shape in layout]
        self._ready: deque[OutputSet] = deque()

    def take(self) -> OutputSet:
        """Fresh arrays."""
        try:
            return self._ready.pop()
        except IndexError:
            return self._refill()

    def _refill(self) -> OutputSet:
        step = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in self._sizes)
        if not self._layout or step > _LARGEST_SMALL:
            return self._one()
        self._ready.extend(self._cut_page(max(step, ALIGNMENT)))
        return self.take()

    def _one(self) -> OutputSet:
        """An allocation an array: one that is dropped gives its memory back alone."""
        memories = [AlignedBytes(max(size, 1)) for size in self._sizes]
        arrays = [
            np.ndarray(shape, dtype, memory.array, memory.offset)
            for (dtype, shape), memory in zip(self._layout, memories, strict=True)
        ]
        return tuple(arrays), (*self._constants, *(memory.pointer for memory in memories))

    def _cut_page(self, step: int) -> Iterable[OutputSet]:
        """Sets cut from one page, column by column: a tenth of the cost of making them one by one."""
        count = _PAGE // step
        memory = AlignedBytes(count * step)
        starts = range(0, count * step, step)
        columns: list[list[Array]] = []
        pointers: list[Iterable[CData]] = [repeat(constant, count) for constant in self._constants]
        at = 0
        for (dtype, shape), size in zip(self._layout, self._sizes, strict=True):
            columns.append(_column(memory, at, step, count, dtype, shape))
            pointers.append([memory.pointer + (start + at) for start in starts])
            at += -(-size // ALIGNMENT) * ALIGNMENT
        return zip(zip(*columns, strict=True), zip(*pointers, strict=True), strict=True)


def _column(
    memory: AlignedBytes, at: int, step: int, count: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> list[Array]:
    """The same output of ``count`` sets that lie ``step`` bytes apart."""
    offset = memory.offset + at
    if not shape:
        return [np.ndarray((), dtype, memory.array, offset + row * step) for row in range(count)]
    strides = np.ndarray(shape, dtype, memory.array).strides
    return list(np.ndarray((count, *shape), dtype, memory.array, offset, (step, *strides)))


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
