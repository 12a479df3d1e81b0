"""Kernels that compute the same, timed side by side on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime import dlpack
from kcache_grpc.runtime.dtypes import SMALL, numpy_dtype
from kcache_grpc.runtime.kernel import Kernel

#: Seconds of one sample at least: several calls, where one is shorter.
_SAMPLE = 5e-4
#: Rounds at least and at most.
_LEAST, _MOST = 5, 400
#: Calls of one sample at most.
_MOST_CALLS = 5000
#: Seconds of a call, of this many one after the other.
Timer: TypeAlias = Callable[[int], float]
#: dtype -> how far results may lie apart, of an element or of the root mean square of its array.
_APART = {"f64": 1e-9, "c128": 1e-9, "f32": 1e-3, "c64": 1e-3, "f16": 2e-2, "bf16": 1e-1}


@dataclass(frozen=True)
class Pace:
    """Median nanoseconds of a call, and of how many samples.

    ``ratio`` is the median, over the rounds, of the first kernel's time over its own; ``low`` and ``high``
    are the quartiles.
    """

    nanoseconds: int
    samples: int
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0


def race(kernels: Mapping[str, Kernel], arrays: Sequence[Any], seconds: float) -> dict[str, Pace]:
    """The pace of each kernel. Every round calls all, each time in another order, until time is up.

    Kernels for a GPU are timed by its own events, without the time that the host takes to launch them.
    """
    with ExitStack() as stack:
        timers = {name: _timer(kernel, arrays, stack) for name, kernel in kernels.items()}
        return _race(timers, seconds)


def _race(timers: Mapping[str, Timer], seconds: float) -> dict[str, Pace]:
    calls = {name: _calls(timer) for name, timer in timers.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    names, end = list(timers), time.perf_counter() + seconds
    for number in range(_MOST):
        if number >= _LEAST and time.perf_counter() > end:
            break
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            samples[name].append(timers[name](calls[name]))
    return {name: _pace(taken, samples[names[0]]) for name, taken in samples.items()}


def _pace(taken: Sequence[float], first: Sequence[float]) -> Pace:
    ratios = [base / own for base, own in zip(first, taken, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Pace(max(1, round(statistics.median(taken) * 1e9)), len(taken), middle, low, high)


def _calls(timer: Timer) -> int:
    timer(1)
    return max(1, min(_MOST_CALLS, round(_SAMPLE / max(timer(1), 1e-7))))


def _timer(kernel: Kernel, arrays: Sequence[Any], stack: ExitStack) -> Timer:
    if isinstance(kernel.manifest.target, GpuTarget):
        prepared = kernel.prepared(*arrays)
        stack.callback(prepared.close)
        return prepared.sample
    return lambda calls: _sample(kernel, arrays, calls)


def _sample(kernel: Kernel, arrays: Sequence[Any], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        kernel(*arrays)
    return (time.perf_counter() - began) / calls


def difference(expected: Sequence[Any], results: Sequence[Any], kernel: Kernel, strict: bool) -> str:
    """How results differ from those expected, in words; empty where they agree as their numerics allow."""
    for number, (left, right) in enumerate(zip(expected, results, strict=True)):
        dtype = kernel.manifest.outputs[number].dtype
        a, b = _on_host(left), _on_host(right)
        exact = strict or dtype not in _APART
        if a.tobytes() == b.tobytes() or (not exact and _close(a, b, _APART[dtype])):
            continue
        return f"result {number} differs from that of the default schedule"
    return ""


def _on_host(value: Any) -> Any:
    if getattr(value, "__dlpack_device__", tuple)()[:1] == (dlpack.CUDA,):
        from kcache_grpc.runtime.gpu.launch_graph import to_host

        return to_host(value)
    return np.asarray(value)


def _close(a: Any, b: Any, apart: float) -> bool:
    if a.dtype.kind not in "fc":  # bf16 without a package for the type
        return bool(np.all(np.abs(a.astype(np.int64) - b.astype(np.int64)) <= 32))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x: Any = a.astype(wide)
    y: Any = b.astype(wide)
    finite: NDArray[Any] = x[np.isfinite(x)]
    scale = float(np.linalg.norm(finite) / np.sqrt(max(1, finite.size)))
    return bool(np.allclose(y, x, rtol=apart, atol=apart * scale, equal_nan=True))


def drawn(tensors: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]], seed: int = 0) -> list[Any]:
    """Arguments of these types and shapes."""
    generator = np.random.default_rng(seed)
    pairs = zip(tensors, shapes, strict=True)
    return [draw(generator, tensor.dtype, shape) for tensor, shape in pairs]


def draw(generator: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Normal floats; integers from 0 to 3, small enough to be indices."""
    storage = numpy_dtype(dtype)
    if dtype == "i1":
        return generator.integers(0, 2, shape).astype(storage)
    if dtype.lstrip("u").startswith("i"):
        return generator.integers(0, 2 if dtype == "i2" else 4, shape).astype(storage)
    if dtype in SMALL and storage == np.uint8:
        return generator.integers(0, 8, shape).astype(storage)
    values: Any = generator.standard_normal(shape)
    if dtype.startswith("c"):
        values = values + 1j * generator.standard_normal(shape)
    return _bits_of_bfloat16(values) if dtype == "bf16" and storage.kind == "u" else values.astype(storage)


def _bits_of_bfloat16(values: NDArray[Any]) -> NDArray[Any]:
    """Without a package for the type: the upper half of a float, rounded towards zero."""
    bits: Any = np.ascontiguousarray(values, np.float32)
    return (bits.view(np.uint32) >> 16).astype(np.uint16)
