"""Memory of small outputs that calls lend in turn.

Every array that is made of an output, at whatever remove, holds a reference to the array that owns the
memory, which no caller is given another way: when only our own references are left, nobody sees the memory.
To count them costs less than to be told of the end of every output.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from kcache_grpc.runtime.cpu._abi import CData
from kcache_grpc.runtime.cpu.memory import AlignedBytes, Array

#: Most blocks that one ring keeps, and most bytes of them.
_MOST, _MOST_BYTES = 8, 1 << 16
#: Without the interpreter's lock counts of references are not exact.
COUNTS_ARE_EXACT: bool = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()

OutputSet = tuple[tuple[Array, ...], tuple[CData, ...]]
#: Memory, an array of each output's kind on it, and what ends the call's list of buffers.
_Block = tuple[Array, tuple[Array, ...], tuple[CData, ...]]


def ring(
    layout: list[tuple[np.dtype[Any], tuple[int, ...]]],
    offsets: list[int],
    size: int,
    constants: tuple[CData, ...],
) -> Callable[[], OutputSet]:
    """Gives sets of outputs, each at ``offsets`` in ``size`` bytes with undefined contents, and the pointers.

    Safe from many threads at once: a block is in the ring or in the hands of one of them.
    """
    most = max(2, min(_MOST, _MOST_BYTES // size))
    blocks: deque[_Block] = deque()
    count = sys.getrefcount
    pop, put = blocks.popleft, blocks.append

    def made() -> _Block:
        memory = AlignedBytes(size)
        places = zip(layout, offsets, strict=True)
        arrays = [np.ndarray(shape, dtype, memory.array, memory.offset + at) for (dtype, shape), at in places]
        pointers = [memory.pointer + at for at in offsets]
        return memory.array, tuple(arrays), (*constants, *pointers)

    def free() -> _Block:
        try:
            block = pop()
        except IndexError:
            return made()
        if count(block[0]) == idle:
            return block
        if len(blocks) < most - 1:
            put(block)
        return made()

    def take() -> OutputSet:
        block = free()
        outputs = tuple([array[...] for array in block[1]])
        put(block)
        return outputs, block[2]

    def take_one() -> OutputSet:
        block = free()
        output = block[1][0][...]
        put(block)
        return (output,), block[2]

    block = made()
    #: References to the memory of a block that nobody has, asked for as above.
    idle = count(block[0])
    del block
    return take_one if len(layout) == 1 else take


def lone_ring(dtype: np.dtype[Any], shape: tuple[int, ...], size: int) -> Callable[[], tuple[Array]]:
    """As ``ring`` for one output, without the pointer: nothing else is made on the way."""
    most = max(2, min(_MOST, _MOST_BYTES // size))
    blocks: deque[tuple[Array, Array]] = deque()
    count = sys.getrefcount
    pop, put = blocks.popleft, blocks.append

    def made() -> tuple[Array, Array]:
        memory = AlignedBytes(size)
        return memory.array, np.ndarray(shape, dtype, memory.array, memory.offset)

    def take() -> tuple[Array]:
        try:
            block = pop()
        except IndexError:
            block = made()
        if count(block[0]) != idle:
            if len(blocks) < most - 1:
                put(block)
            block = made()
        output = block[1][...]
        put(block)
        return (output,)

    block = made()
    #: References to the memory of a block that nobody has, asked for as above.
    idle = count(block[0])
    del block
    return take
