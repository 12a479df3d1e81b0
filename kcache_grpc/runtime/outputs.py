"""The arrays that calls return: the caller's own, and cheap to make."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

import numpy as np

from kcache_grpc.runtime._abi import CData
from kcache_grpc.runtime.memory import AlignedBytes, Array
from kcache_grpc.runtime.recycled import Recycled, rounded

#: Small outputs are cut from pieces of one page: whoever keeps one keeps 4 KiB alive, never more.
_PAGE = 4096
_LARGEST_SMALL = _PAGE // 4

#: One call's output arrays, and the end of its buffer list: constants, then these arrays.
OutputSet = tuple[tuple[Array, ...], tuple[CData, ...]]


class Outputs:
    """Makes the output arrays of calls.

    ``take`` gives fresh arrays; it is safe from many threads at once, and no two sets share memory.
    """

    __slots__ = ("_arrays", "_constants", "_layout", "_ready", "_sizes", "_step", "take")

    def __init__(
        self,
        layout: list[tuple[np.dtype[Any], tuple[int, ...]]],
        constants: list[CData],
        blocks: Recycled,
    ) -> None:
        self._layout = layout
        self._constants = tuple(constants)
        self._sizes = [_bytes_of(dtype, shape) for dtype, shape in layout]
        self._arrays = [
            functools.partial(blocks.array, dtype, shape, rounded(size))
            for (dtype, shape), size in zip(layout, self._sizes, strict=True)
        ]
        self._ready: deque[OutputSet] = deque()
        self._step = sum(map(rounded, self._sizes))
        self.take: Callable[[], OutputSet] = self._several
        if self._step <= _LARGEST_SMALL and layout:
            self.take = self._cut
        elif len(layout) == 1:
            self.take = self._single(self._arrays[0])

    def _single(self, array: Callable[[], tuple[Array, CData]]) -> Callable[[], OutputSet]:
        """The case that is worth its own code."""
        constants = self._constants

        def take() -> OutputSet:
            output, pointer = array()
            return (output,), (*constants, pointer)

        return take

    def _several(self) -> OutputSet:
        """A block an array: one that is dropped gives its memory back alone."""
        made = [array() for array in self._arrays]
        return tuple([output for output, _ in made]), (*self._constants, *[pointer for _, pointer in made])

    def _cut(self) -> OutputSet:
        try:
            return self._ready.pop()
        except IndexError:
            self._ready.extend(self._cut_page(self._step))
            return self._cut()

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
            at += rounded(size)
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


def _bytes_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    size = dtype.itemsize
    for dim in shape:
        size *= dim
    return size
