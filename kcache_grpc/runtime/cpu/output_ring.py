"""Memory of small outputs that calls lend in turn.

Every array that is made of an output, at whatever remove, holds a reference to the array that owns the
memory, which no caller is given another way: when only our own references are left, nobody sees the memory.
To count them costs less than to be told of the end of every output.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kcache_grpc.runtime.cpu._abi import CData
from kcache_grpc.runtime.cpu.memory import AlignedBytes, Array

#: Most blocks that one ring keeps, and most bytes of them.
_MOST, _MOST_BYTES = 8, 1 << 16
#: Without the interpreter's lock counts of references are not exact.
COUNTS_ARE_EXACT: bool = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()

#: What a call needs of the outputs besides the arrays: made once a block, of its pointers.
End = TypeVar("End")


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
