"""Memory of outputs that comes back when their arrays are gone.

A fresh page costs more than most kernels do to it, and so does finding an aligned address. An output is a
view of a block of ours. NumPy lets views of a view refer to the owner of the memory, but only if that is of
the same class; blocks are of a class of their own, so whatever is made of an output, a slice or an
export, keeps the output itself alive. When it is gone, nobody sees the block, and the next call takes it.
"""

from __future__ import annotations

import os
import sys
import weakref
from functools import lru_cache
from typing import Any

import numpy as np

from kcache_grpc.errors import ResourceExhausted
from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.cpu.memory import ALIGNMENT, Array

#: Most bytes kept idle in a process, or as many as the outputs of a call have, if these are more: those of a
#: training step come back when the next one has been made of them. A larger block goes back to the system.
IDLE_LIMIT = 256 << 20
#: Nor is more than this part of the machine's memory kept for the outputs of a call.
_SHARE = 8
_MOST_SIZES = 64

_BYTE = np.dtype(np.uint8)
_ADDRESS = ffi.typeof("uintptr_t")


class _Memory(np.ndarray[Any, Any]):
    """The class that ends NumPy's search for an owner. Must own its memory."""


class _Block:
    """``size`` bytes at an aligned ``pointer``, ``offset`` into ``memory``."""

    __slots__ = ("memory", "offset", "pointer", "size")

    def __init__(self, size: int) -> None:
        try:
            self.memory = _Memory(size + ALIGNMENT, _BYTE)
        except (MemoryError, ValueError) as error:
            raise ResourceExhausted(f"no memory for a buffer of {size} bytes", limit="memory") from error
        start = ffi.from_buffer(self.memory)
        self.offset = -int(ffi.cast(_ADDRESS, start)) % ALIGNMENT
        self.pointer: CData = start + self.offset
        self.size = size


class _Loan(weakref.ref[Array]):
    """Tells its pool when the array that ``block`` was lent to is gone."""

    __slots__ = ("block",)

    block: _Block


def rounded(size: int) -> int:
    """Round a size up, to a positive size that keeps the next block aligned."""
    return max(-(-size // ALIGNMENT), 1) * ALIGNMENT


class Recycled:
    """Blocks by size. Without a lock: safe from many threads, in a garbage collection, and after a fork."""

    def __init__(self, limit: int = IDLE_LIMIT, largest: int = sys.maxsize) -> None:
        self._limit = limit
        self._largest = largest
        #: Bytes of the outputs of a call, by the identity of who calls.
        self._calls: dict[int, int] = {}
        self._free: dict[int, list[_Block]] = {}
        self._loans: dict[int, _Loan] = {}
        #: Bytes that nobody uses; threads at once may lose an update, which counting again mends.
        self.idle = 0

    def expect(self, caller: object, size: int) -> None:
        """Keep up to ``size`` bytes idle, those of the outputs of a call, as long as ``caller`` is alive.

        Nothing is kept for a call whose outputs need more than ``largest``.
        """
        if self._limit < size <= self._largest:
            self._calls[id(caller)] = size
            weakref.finalize(caller, self._forget, id(caller)).atexit = False

    def _forget(self, caller: int) -> None:
        del self._calls[caller]
        if self.idle > self._most():
            self._free, self.idle = {}, 0

    def _most(self) -> int:
        return max(self._limit, *list(self._calls.values())) if self._calls else self._limit

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...], size: int) -> tuple[Array, CData]:
        """An array with undefined contents in ``size`` bytes, a ``rounded`` number, and its address.

        The memory comes back when the array is gone, which whatever is made of it keeps alive.
        Raises ``ResourceExhausted``.
        """
        try:
            block = self._free[size].pop()
            self.idle -= size
        except LookupError:
            block = _Block(size)
        array = np.ndarray(shape, dtype, block.memory, block.offset)
        loan = _Loan(array, self._returned)
        loan.block = block
        self._loans[id(loan)] = loan
        return array, block.pointer

    def _returned(self, loan: Any) -> None:
        del self._loans[id(loan)]
        size = loan.block.size
        limit = self._most()
        if size > limit:
            return
        self.idle += size
        if self.idle > limit:
            self.idle = size + sum(size * len(blocks) for size, blocks in list(self._free.items()))
        if self.idle > limit or len(self._free) > _MOST_SIZES:
            self._free, self.idle = {}, size
        self._free.setdefault(size, []).append(loan.block)


@lru_cache(maxsize=1)
def recycled_outputs() -> Recycled:
    """The pool of this process."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Recycled(largest=memory // _SHARE)
