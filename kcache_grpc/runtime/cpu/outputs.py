"""The arrays that calls return: the caller's own, and cheap to make."""

from __future__ import annotations

import functools
import itertools
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.cpu.memory import AlignedBytes, Array
from kcache_grpc.runtime.cpu.recycled_memory import Recycled, rounded

#: Most blocks that one ring keeps, and most bytes of them.
_MOST, _MOST_BYTES = 8, 1 << 16
#: Without the interpreter's lock counts of references are not exact.
COUNTS_ARE_EXACT: bool = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()

#: What a call needs of the outputs besides the arrays: made once a block, of its pointers.
End = TypeVar("End")
#: Sets of outputs to this size share a block of a ring: whoever keeps one output keeps its siblings.
_LARGEST_IN_RING = 1 << 15
_ADDRESS = ffi.typeof("uintptr_t")
OutputSet = tuple[tuple[Array, ...], tuple[CData, ...]]
AddressedSet = tuple[tuple[Array, ...], bytes]


def ring(
    layout: list[tuple[np.dtype[Any], tuple[int, ...]]],
    offsets: list[int],
    size: int,
    end: Callable[[list[CData]], End],
) -> Callable[[], tuple[tuple[Array, ...], End]]:
    """Gives sets of outputs, each at ``offsets`` in ``size`` bytes with undefined contents, and ``end`` of
    their pointers.

    Safe from many threads at once: a block is in the ring or in the hands of one of them.
    """
    most = max(2, min(_MOST, _MOST_BYTES // size))
    #: Memory, an array of each output's kind on it, and ``end``.
    blocks: deque[tuple[Array, tuple[Array, ...], End]] = deque()
    count = sys.getrefcount
    pop, put = blocks.popleft, blocks.append

    def allocate() -> tuple[Array, tuple[Array, ...], End]:
        memory = AlignedBytes(size)
        places = zip(layout, offsets, strict=True)
        arrays = [np.ndarray(shape, dtype, memory.array, memory.offset + at) for (dtype, shape), at in places]
        return memory.array, tuple(arrays), end([memory.pointer + at for at in offsets])

    def free() -> tuple[Array, tuple[Array, ...], End]:
        try:
            block = pop()
        except IndexError:
            return allocate()
        if count(block[0]) == idle:
            return block
        if len(blocks) < most - 1:
            put(block)
        return allocate()

    def take() -> tuple[tuple[Array, ...], End]:
        block = free()
        outputs = tuple([array[...] for array in block[1]])
        put(block)
        return outputs, block[2]

    def take_one() -> tuple[tuple[Array, ...], End]:
        block = free()
        output = block[1][0][...]
        put(block)
        return (output,), block[2]

    block = allocate()
    #: References to the memory of a block that nobody has, asked for as above.
    idle = count(block[0])
    del block
    return take_one if len(layout) == 1 else take


class Outputs:
    """Makes the output arrays of calls.

    ``take`` returns new arrays with the end of a call's list of buffers, ``take_addressed`` with the bytes of
    a C array of their addresses. Both are safe from many threads at once, and no two sets share memory.
    """

    __slots__ = (
        *("__weakref__", "_arrays", "_constants", "_layout", "_sizes"),
        *("count", "take", "take_addressed"),
    )

    def __init__(
        self,
        layout: list[tuple[np.dtype[Any], tuple[int, ...]]],
        constants: list[CData],
        blocks: Recycled,
    ) -> None:
        self._layout = layout
        self.count = len(layout)
        self._constants = tuple(constants)
        self._sizes = [_bytes_of(dtype, shape) for dtype, shape in layout]
        self._arrays = [
            functools.partial(blocks.array, dtype, shape, rounded(size))
            for (dtype, shape), size in zip(layout, self._sizes, strict=True)
        ]
        size = sum(map(rounded, self._sizes))
        blocks.expect(self, size)
        self.take: Callable[[], OutputSet] = self._several
        self.take_addressed: Callable[[], AddressedSet] = self._several_addressed
        if layout and size <= _LARGEST_IN_RING and COUNTS_ARE_EXACT:
            offsets = [0, *itertools.accumulate(map(rounded, self._sizes))][:-1]
            self.take = ring(layout, offsets, size, lambda pointers: (*self._constants, *pointers))
            self.take_addressed = ring(layout, offsets, size, packed)
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
        pairs = [array() for array in self._arrays]
        return tuple([output for output, _ in pairs]), (*self._constants, *[pointer for _, pointer in pairs])

    def _several_addressed(self) -> AddressedSet:
        pairs = [array() for array in self._arrays]
        return tuple([output for output, _ in pairs]), packed([pointer for _, pointer in pairs])


def packed(pointers: list[CData]) -> bytes:
    """The bytes of a C array of these pointers."""
    return struct.pack(f"{len(pointers)}P", *[int(ffi.cast(_ADDRESS, pointer)) for pointer in pointers])


def _bytes_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    size = dtype.itemsize
    for dim in shape:
        size *= dim
    return size
