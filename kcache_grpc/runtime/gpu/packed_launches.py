"""The launches of a plan, with all that is the same in every call written down once."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from kcache_grpc.model.gpu.launch import GpuCall, Param
from kcache_grpc.runtime.gpu.driver import Driver, Function, Handle, Launch, Pointer, launch_of

_MASK = (1 << 64) - 1
#: What parameters are added to: nothing, the workspace, then the buffers.
_NOTHING, _WORKSPACE, _BUFFERS = 0, 1, 2


class _Frame(NamedTuple):
    """Memory for the parameters of one call at a time: the driver reads them while the launch is enqueued."""

    values: Any
    pointers: Any
    #: Of each launch, where its part of ``pointers`` begins.
    params: tuple[Pointer, ...]


class Packed:
    """Launches in order. Safe from many threads at once: each call has its own frame."""

    __slots__ = ("_frames", "_launches", "_pack", "_slots", "_starts")

    def __init__(self, calls: Sequence[tuple[Function, GpuCall]]) -> None:
        starts, slots = list[int](), list[tuple[int, int]]()
        for _, call in calls:
            starts.append(8 * len(slots))
            slots += map(_slot, call.params)
        self._launches: tuple[Launch, ...] = tuple(
            launch_of(function, call.grid, call.block, call.shared_bytes) for function, call in calls
        )
        self._slots, self._starts = tuple(slots), tuple(starts)
        self._pack = struct.Struct(f"{len(slots)}Q").pack_into
        self._frames: list[_Frame] = []

    def run(self, driver: Driver, stream: Handle, workspace: Handle, buffers: Sequence[Handle]) -> None:
        """Enqueue the launches on ``stream``."""
        if not self._launches:
            return
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._frame()
        bases = (0, workspace, *buffers)
        self._pack(frame.values, 0, *[bases[base] + added for base, added in self._slots])
        launch, on = driver.launch, Pointer(stream)
        for each, params in zip(self._launches, frame.params):  # noqa: B905 - of equal lengths; the hot loop
            launch(each, on, params)
        self._frames.append(frame)

    def _frame(self) -> _Frame:
        count = max(1, len(self._slots))
        values = (ctypes.c_uint64 * count)()
        address = ctypes.addressof(values)
        pointers = (Pointer * count)(*range(address, address + 8 * count, 8))
        first = ctypes.addressof(pointers)
        return _Frame(values, pointers, tuple(Pointer(first + start) for start in self._starts))


def _slot(param: Param) -> tuple[int, int]:
    """What a parameter is added to, and what is added."""
    if param.kind == "buffer":
        return _BUFFERS + param.value, 0
    if param.kind == "workspace":
        return _WORKSPACE, param.value
    return _NOTHING, param.value & _MASK
