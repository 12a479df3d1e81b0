"""The arrays that calls return: the caller's own, and cheap to make."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from kcache_grpc.runtime.cpu._abi import CData
from kcache_grpc.runtime.cpu.memory import Array
from kcache_grpc.runtime.cpu.output_ring import COUNTS_ARE_EXACT, OutputSet, lone_ring, ring
from kcache_grpc.runtime.cpu.recycled_memory import Recycled, rounded

#: Sets of outputs to this size share a block of a ring: whoever keeps one output keeps its siblings.
_LARGEST_IN_RING = 1 << 15


class Outputs:
    """Makes the output arrays of calls.

    ``take`` gives fresh arrays with the end of a call's list of buffers, ``fresh`` the arrays alone. Both
    are safe from many threads at once, and no two sets share memory.
    """

    __slots__ = ("_arrays", "_constants", "_layout", "_sizes", "fresh", "take")

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
        size = sum(map(rounded, self._sizes))
        self.take: Callable[[], OutputSet] = self._several
        self.fresh: Callable[[], tuple[Array, ...]] = self._fresh
        if layout and size <= _LARGEST_IN_RING and COUNTS_ARE_EXACT:
            offsets = [0, *itertools.accumulate(map(rounded, self._sizes))][:-1]
            self.take = ring(layout, offsets, size, self._constants)
            if len(layout) == 1:
                self.fresh = lone_ring(*layout[0], size)
        elif len(layout) == 1:
            self.take = self._single(self._arrays[0])

    def _single(self, array: Callable[[], tuple[Array, CData]]) -> Callable[[], OutputSet]:
        """The case that is worth its own code."""
        constants = self._constants

        def take() -> OutputSet:
            output, pointer = array()
            return (output,), (*constants, pointer)

        return take

    def _fresh(self) -> tuple[Array, ...]:
        return self.take()[0]

    def _several(self) -> OutputSet:
        """A block an array: one that is dropped gives its memory back alone."""
        made = [array() for array in self._arrays]
        return tuple([output for output, _ in made]), (*self._constants, *[pointer for _, pointer in made])


def _bytes_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    size = dtype.itemsize
    for dim in shape:
        size *= dim
    return size
