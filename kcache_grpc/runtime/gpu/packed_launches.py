"""The launches of a plan, with all that is the same in every call written down once."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from kcache_grpc.model.gpu.launch import GpuCall, Param
from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.gpu.driver import Driver, Function, Handle, Launch

_MASK = (1 << 64) - 1
_ADDRESS = ffi.typeof("uintptr_t")
#: What parameters are added to: nothing, the workspace, then the buffers.
_NOTHING, _WORKSPACE, _BUFFERS = 0, 1, 2


class _Frame(NamedTuple):
    """Memory for the parameters of one call at a time: the driver reads them while the launch is put down."""

    values: Any
    pointers: CData
    first: int


class Packed:
    """Launches in order. Safe from many threads at once: each call has a frame of its own."""

    __slots__ = ("_frames", "_launches", "_pack", "_size", "_slots")

    def __init__(self, calls: Sequence[tuple[Function, GpuCall]]) -> None:
        starts, slots = list[int](), list[tuple[int, int]]()
        for _, call in calls:
            starts.append(8 * len(slots))
            slots += map(_slot, call.params)
        launches = ((int(function), *call.grid, *call.block, call.shared_bytes) for function, call in calls)
        self._launches: tuple[tuple[Launch, int], ...] = tuple(zip(launches, starts, strict=True))
        self._slots = tuple(slots)
        self._size = 8 * len(slots)
        self._pack = struct.Struct(f"{len(slots)}Q").pack_into
        self._frames: list[_Frame] = []

    def run(self, driver: Driver, stream: Handle, workspace: Handle, buffers: Sequence[Handle]) -> None:
        """Puts the launches on ``stream``."""
        if not self._launches:
            return
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._frame()
        bases = (0, workspace, *buffers)
        self._pack(frame.values, 0, *[bases[base] + added for base, added in self._slots])
        launch, first = driver.launch, frame.first
        for each, start in self._launches:
            launch(each, stream, first + start)
        self._frames.append(frame)

    def _frame(self) -> _Frame:
        values = bytearray(max(8, self._size))
        address = int(ffi.cast(_ADDRESS, ffi.from_buffer(values)))
        pointers = ffi.new("uint64_t[]", [address + offset for offset in range(0, self._size, 8)] or [0])
        return _Frame(values, pointers, int(ffi.cast(_ADDRESS, pointers)))


def _slot(param: Param) -> tuple[int, int]:
    """What a parameter is added to, and what is added."""
    if param.kind == "buffer":
        return _BUFFERS + param.value, 0
    if param.kind == "workspace":
        return _WORKSPACE, param.value
    return _NOTHING, param.value & _MASK
