"""Programs of a pack with their arguments and expected results, on the machine that compiles them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.gpu.kit.runtime.values import stored
from kcache_compiler.types import SMALL_FLOATS, CompiledKernel, CompileOptions
from kcache_grpc.runtime.dtypes import numpy_dtype

Array = Any

#: Results of more elements are sampled.
WHOLE = 1 << 13
_SAMPLED, _ENDS = 2048, 64


@dataclass(frozen=True)
class Argument:
    """Elements in memory, or the seed that makes them (``values.seeded``)."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes | None = field(default=None, repr=False)
    seed: int = 0


@dataclass(frozen=True)
class Expected:
    """A result: ``wanted`` are stored elements if it is exact, else numbers of NumPy's type ``numbers``, at
    ``positions`` if it is sampled. ``sha256`` is of the whole result if it is known and has no NaN.
    """

    dtype: str
    shape: tuple[int, ...]
    wanted: bytes = field(repr=False)
    numbers: str = ""
    rtol: float = 0.0
    atol: float = 0.0
    positions: bytes | None = field(default=None, repr=False)
    sha256: str = ""

    def header(self) -> dict[str, Any]:
        """What ``values.compared`` reads, without the bytes."""
        said: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape), "exact": not self.numbers}
        said |= {"sampled": self.positions is not None, "sha256": self.sha256}
        if self.dtype in SMALL_FLOATS:
            codes = np.arange(256, dtype=np.uint8).view(numpy_dtype(self.dtype))
            said["nan"] = np.flatnonzero(np.isnan(codes.astype(np.float32))).tolist()
        return said | (
            {"numbers": self.numbers, "rtol": self.rtol, "atol": self.atol} if self.numbers else {}
        )


@dataclass(frozen=True)
class Call:
    """Arguments and what the kernel makes of them."""

    arguments: tuple[Argument, ...]
    expected: tuple[Expected, ...]


@dataclass(frozen=True)
class Program:
    """``compiled`` returns the kernel for a target, compiled with ``options``."""

    compiled: Callable[[str], CompiledKernel]
    calls: tuple[Call, ...]
    constants: tuple[bytes, ...] = ()
    options: CompileOptions = field(default_factory=CompileOptions)


@dataclass(frozen=True)
class Source:
    """A case of a pack before it is compiled. ``facts`` are further entries of the index.

    Cases with the same ``shares`` have the same kernel of the CPU, and are packed by one process.
    """

    name: str
    group: str
    dtype: str
    build: Callable[[], Program] = field(repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kind: str = "test"
    shares: str = ""


def argument(dtype: str, array: Array) -> Argument:
    """An array whose elements are those of ``dtype``."""
    content = np.ascontiguousarray(array)
    assert content.dtype.itemsize == stored(dtype).itemsize, (dtype, content.dtype)
    return Argument(dtype, tuple(array.shape), content.tobytes())


def exact(dtype: str, shape: Sequence[int], content: bytes) -> Expected:
    """A result whose bits are known."""
    elements = np.frombuffer(content, stored(dtype))
    at = _positions(elements.size)
    if at is None:
        return Expected(dtype, tuple(shape), content)
    return Expected(dtype, tuple(shape), elements[at].tobytes(), positions=at.tobytes())


def near(dtype: str, numbers: Array, rtol: float, atol: float) -> Expected:
    """A float result that is within ``atol + rtol * |number|`` of numbers in f64."""
    numbers = np.asarray(numbers)
    kind = "<f8" if dtype == "f64" else "<f4"
    at = _positions(numbers.size)
    chosen = numbers.reshape(-1) if at is None else numbers.reshape(-1)[at]
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = chosen.astype(kind).tobytes()
    return Expected(
        dtype,
        tuple(numbers.shape),
        wanted,
        kind,
        rtol,
        atol,
        None if at is None else at.tobytes(),
    )


def as_near(dtype: str, array: Array, rtol: float, of_largest: float) -> Expected:
    """Near what another kernel gave: ``of_largest`` is a share of its largest value, or of 1.

    Results that are no floats are exact.
    """
    if array.dtype.kind not in "fV" and array.dtype != ml_dtypes.bfloat16:
        return exact(dtype, array.shape, np.ascontiguousarray(array).tobytes())
    numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    return near(dtype, numbers, rtol, of_largest * float(np.max(np.abs(finite), initial=1.0)))


def _positions(size: int) -> Array | None:
    """Positions that are compared, ascending, as i64; None for all."""
    if size <= WHOLE:
        return None
    drawn = np.random.default_rng(size).integers(0, size, _SAMPLED, np.int64)
    ends = np.concatenate([np.arange(_ENDS), np.arange(size - _ENDS, size)])
    return np.unique(np.concatenate([drawn, ends.astype(np.int64)])).astype("<i8")
