"""What this machine can do at most: copy bandwidth by size, multiply-adds; and kernels written by hand."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.kernels.case import Array, Case, aligned_empty
from benchmarks.kernels.contenders import Absent, Built

NAME = "by hand"
FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-Wno-psabi", "-shared", "-fPIC")
#: Name in the report -> bytes of both buffers together.
SIZE_CLASSES = {"L1": 16 << 10, "L2": 512 << 10, "last level": 8 << 20, "memory": 512 << 20}
#: Bytes of results from which Adam's go past the caches.
_PAST = 32 << 20
#: Rounds of multiply-adds that tell in turns what the machine gives.
_BEAT = 20_000
_SOURCE = Path(__file__).with_name("limits.c")


class Limits:
    """Measured by C loops that are compiled for this machine; on as many threads as this process may use."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        library = folder / "limits.so"
        command = ["gcc", *FLAGS, "-o", str(library), str(_SOURCE), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        self._c = ctypes.CDLL(str(library))
        self._c.fma_peak.restype = ctypes.c_double
        self._c.read_sum.restype = ctypes.c_float
        self._bandwidth: dict[int, float] = {}

    @functools.cached_property
    def peak(self) -> float:
        """f32 operations a second, a multiply-add being two."""
        rounds = ctypes.c_int64(500_000)
        self._c.fma_peak(rounds)
        return max(self._operations(rounds) for _ in range(9))

    def _operations(self, rounds: ctypes.c_int64) -> float:
        started = self._clock()
        operations: float = self._c.fma_peak(rounds)
        return operations / (self._clock() - started)

    def beat(self, rounds: int = _BEAT) -> Callable[[], float]:
        """Multiply-adds on every thread, by default for a tenth of a millisecond: what the machine gives at a
        time. Returns the operations, a multiply-add being two.
        """
        return functools.partial(self._c.fma_peak, ctypes.c_int64(rounds))

    def reading(self, size: int) -> Callable[[], float]:
        """A sum of ``size`` bytes, read in order."""
        source = aligned_empty((size // 4,), np.float32)
        source[...] = 1
        count = ctypes.c_int64(source.size)
        return lambda: self._c.read_sum(_pointer(source), count)

    def copying(self, size: int) -> Callable[[], object]:
        """One copy past the caches, where there are such stores, of ``size`` bytes read and written."""
        count = size // 8
        source, target = (aligned_empty((count,), np.float32) for _ in range(2))
        source[...] = 1
        target[...] = 0
        sizes = ctypes.c_int64(count), ctypes.c_int32(1), ctypes.c_int64(1)

        def copy() -> None:
            self._c.copy(_pointer(target), _pointer(source), *sizes)

        return copy

    def bandwidth(self, size: int) -> float:
        """Bytes a second, read and written counted both, of a copy whose two buffers take ``size`` bytes."""
        known = 1 << max(12, size.bit_length() - 1)
        if known not in self._bandwidth:
            self._bandwidth[known] = self._copied(known)
        return self._bandwidth[known]

    def _copied(self, size: int) -> float:
        count = size // 8
        source, target = (aligned_empty((count,), np.float32) for _ in range(2))
        source[...] = 1
        target[...] = 0
        repeats = max(1, (32 << 20) // size)
        ways = (0, 1) if size > 1 << 20 else (0,)
        best = min(self._seconds(target, source, count, way, repeats) for way in ways for _ in range(7))
        return size / best

    def _seconds(self, target: Array, source: Array, count: int, way: int, repeats: int) -> float:
        sizes = ctypes.c_int64(count), ctypes.c_int32(way), ctypes.c_int64(repeats)
        started = self._clock()
        self._c.copy(_pointer(target), _pointer(source), *sizes)
        return (self._clock() - started) / repeats

    def least_seconds(self, traffic: int, flops: float) -> tuple[float, str]:
        """What a kernel takes at least that moves so many bytes and does so many operations, and which of the
        two it waits for.
        """
        moving, computing = traffic / self.bandwidth(traffic), flops / self.peak
        return (computing, "compute") if computing > moving else (moving, "memory")

    def build(self, case: Case, inputs: list[Array]) -> Built:
        """Three kernels written by hand, on buffers that are ready."""
        kind, shape = case.name.partition("/")[0], inputs[0].shape
        sizes = {"exp_add": 16, "rms_norm": 64, "adam": 16}
        if kind not in sizes or shape[-1] % sizes[kind]:
            raise Absent("not written by hand")
        outputs = [aligned_empty(shape, np.float32) for _ in range(3 if kind == "adam" else 1)]
        arguments: list[object] = [*map(_pointer, [*outputs, *inputs]), *map(ctypes.c_int64, shape)]
        if kind == "adam":
            arguments.append(ctypes.c_int32(3 * outputs[0].nbytes >= _PAST))
        function: Callable[..., None] = getattr(self._c, kind)
        return Built(functools.partial(function, *arguments), lambda _: outputs)


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
