"""Elements of arguments and results as NumPy arrays, without packages for narrow types; comparisons.

bf16 and elements of 8 bits and fewer are handled as bits. Two NaN are equal, whatever their bits are, except
for those that results are filled with before a kernel runs: they say that nothing was written.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

Array = Any

#: dtype -> NumPy's type of the stored elements; others take a byte.
_STORED = {
    "i1": "u1",
    **{f"i{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
    "f16": "f2",
    "bf16": "u2",
    "f32": "f4",
    "f64": "f8",
    "c64": "c8",
    "c128": "c16",
}
#: A quiet NaN that no arithmetic makes: GPUs give 0x7f...ff, CPUs the NaN without a payload. Where a result
#: has these bits, one of the ``_PAYLOADS`` below is taken.
_UNWRITTEN = {"f16": 0xFE5A, "bf16": 0xFFDA, "f32": 0xFFDA5A5A, "f64": 0xFFFA5A5A5A5A5A5A}
_PAYLOADS = 0x5A
_PARTS = {"c64": "f32", "c128": "f64"}
#: Seeded values repeat after so many, a prime, so that rows differ.
PERIOD = 1_048_573
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1


def stored(dtype: str) -> Any:
    """NumPy's type of the bytes of an element."""
    return np.dtype(_STORED.get(dtype, "u1"))


def size_of(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of an array."""
    return math.prod(shape) * stored(dtype).itemsize


def wide(dtype: str, elements: Array) -> Array:
    """Stored elements as numbers: f64 for floats of at most 64 bits, else as they are."""
    if dtype == "bf16":
        elements = (elements.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):  # NaN that signals
        return elements.astype(np.float64) if elements.dtype.kind == "f" else elements


def narrowed(dtype: str, numbers: Array) -> Array:
    """f32 numbers as stored elements of a float dtype, rounded to nearest, ties to even."""
    if dtype != "bf16":
        return numbers.astype(stored(dtype))
    bits = numbers.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


@lru_cache(maxsize=16)
def seeded_table(dtype: str, seed: int) -> Array:
    """``PERIOD`` stored elements, uniform with mean 0 and variance 1: the same on every machine."""
    bits = np.arange(1, PERIOD + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    bits += np.uint64(seed * _FIRST & _MASK)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(_FIRST)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(_SECOND)
    share = ((bits ^ (bits >> np.uint64(31))) >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1
    table = narrowed(dtype, (share * math.sqrt(3)).astype(np.float32))
    table.flags.writeable = False
    return table


def seeded(dtype: str, shape: Sequence[int], seed: int) -> Array:
    """An array of seeded values: element ``i`` in memory is element ``i % PERIOD`` of the table."""
    return np.resize(seeded_table(dtype, seed), tuple(shape))


def digest(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def fill_of(expected: Mapping[str, Any], wanted: bytes) -> bytes:
    """The bytes that a result is filled with, over and over, before a kernel writes it.

    ``compared`` takes none of ``wanted`` for right where they are left: an element that is not in ``wanted``,
    of floats a NaN with a payload; or the one that is least often where all 256 are.
    """
    dtype = expected["dtype"]
    if (part := _PARTS.get(dtype, dtype)) in _UNWRITTEN:
        word, kind = _UNWRITTEN[part], f"<u{stored(part).itemsize}"
        taken = set(np.frombuffer(wanted, kind).tolist()) if expected["exact"] else set[int]()
        free = (word - n for n in range(_PAYLOADS) if word - n not in taken)
        return np.array(next(free, word), kind).tobytes()
    size = stored(dtype).itemsize
    fills = [byte for byte in (*range(0x5A, 256), *range(0x5A)) if byte not in expected.get("nan", ())]
    words = np.frombuffer(np.repeat(np.array(fills, np.uint8), size).tobytes(), f"u{size}")
    elements, counts = np.unique(np.frombuffer(wanted, f"u{size}"), return_counts=True)
    often = dict(zip(elements.tolist(), counts.tolist(), strict=True))
    return min(words, key=lambda word: often.get(int(word), 0)).tobytes()


def compared(expected: Mapping[str, Any], wanted: bytes, positions: bytes, got: bytes) -> dict[str, Any]:
    """How far ``got`` is from what is expected.

    ``expected`` has dtype and shape, ``exact`` or ``rtol`` and ``atol``, and ``sha256`` of the whole result
    if it is known. ``wanted`` are stored elements if exact, else numbers in f64 or f32 (``numbers``), of all
    positions, or of ``positions``, i64. Returns the number of values that were compared, the number of wrong
    ones, the largest error as a share of the one allowed, the first wrong value, and ``unwritten``, the
    number of all values that are still what ``fill_of`` gives, where a kernel cannot have written that.
    """
    dtype = expected["dtype"]
    elements = np.frombuffer(got, stored(dtype))
    at = np.frombuffer(positions, "<i8") if expected["sampled"] else None
    chosen = elements if at is None else elements[at]
    if expected["exact"]:
        right = np.frombuffer(wanted, stored(dtype))
        share = _unequal(dtype, chosen, right, expected.get("nan", ()))
    else:
        right = np.frombuffer(wanted, expected["numbers"])
        share = _shares(wide(dtype, chosen), right, expected["rtol"], expected["atol"])
    left = _unwritten(expected, wanted, elements)
    share[left if at is None else left[at]] = np.inf
    said = _said(expected, got, share, at, chosen, right)
    if left.any():
        said |= {"wrong": max(1, said["wrong"]), "unwritten": int(left.sum())}
        said |= {"first": _index(expected, int(left.argmax())), "got": "nothing written"}
        said.setdefault("wanted", "any value")
    return said


def _unwritten(expected: Mapping[str, Any], wanted: bytes, elements: Array) -> Array:
    """Which floats or complex numbers hold, or have a part that holds, what they were filled with."""
    if _PARTS.get(expected["dtype"], expected["dtype"]) not in _UNWRITTEN:
        return np.zeros(elements.size, bool)
    fill = fill_of(expected, wanted)
    word = np.frombuffer(fill, f"u{len(fill)}")
    return (elements.view(word.dtype) == word).reshape(-1, elements.itemsize // word.itemsize).any(1)


def _index(expected: Mapping[str, Any], flat: int) -> list[int]:
    return [int(index) for index in np.unravel_index(flat, tuple(expected["shape"]) or (1,))]


def _said(
    expected: Mapping[str, Any], got: bytes, share: Array, at: Array | None, chosen: Array, right: Array
) -> dict[str, Any]:
    dtype = expected["dtype"]
    wrong = np.flatnonzero(share > 1)
    said: dict[str, Any] = {"compared": int(share.size), "wrong": int(wrong.size)}
    finite = share[np.isfinite(share)]
    said["share"] = float(np.max(finite, initial=0.0))
    if wrong.size:
        first = int(wrong[0])
        said["first"] = _index(expected, first if at is None else int(at[first]))
        shown = wide(dtype, chosen[first : first + 1])[0]
        other = wide(dtype, right[first : first + 1])[0] if expected["exact"] else right[first]
        said["got"], said["wanted"] = str(shown), str(other)
    elif expected.get("sha256") and digest(got) != expected["sha256"]:
        said |= {"wrong": 1, "first": [], "got": "another digest of the whole", "wanted": expected["sha256"]}
    return said


def _unequal(dtype: str, got: Array, wanted: Array, nan: Sequence[int]) -> Array:
    """Infinity where bits differ and not both are NaN, else 0; ``nan`` are the NaN of a narrow type."""
    if got.dtype.kind == "c":
        part = {"c8": "u4", "c16": "u8"}[got.dtype.str[1:]]
        one, other = (each.view(part.replace("u", "f")) for each in (got, wanted))
        unequal = (got.view(part) != wanted.view(part)) & ~(np.isnan(one) & np.isnan(other))
        return np.where(unequal.reshape(-1, 2).any(1), np.inf, 0.0)
    if dtype not in _STORED:
        both = np.isin(got, nan) & np.isin(wanted, nan)
        return np.where((got != wanted) & ~both, np.inf, 0.0)
    if dtype in ("f16", "bf16", "f32", "f64"):
        both = np.isnan(wide(dtype, got)) & np.isnan(wide(dtype, wanted))
        bits = f"u{got.dtype.itemsize}"
        return np.where((got.view(bits) != wanted.view(bits)) & ~both, np.inf, 0.0)
    return np.where(got != wanted, np.inf, 0.0)


def _shares(got: Array, wanted: Array, rtol: float, atol: float) -> Array:
    """Errors as shares of what is allowed; infinite where what is not finite differs."""
    with np.errstate(all="ignore"):
        allowed = rtol * np.abs(wanted) + atol
        share = np.abs(got - wanted) / allowed
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        finite = np.isfinite(got) & np.isfinite(wanted)
    return np.where(same, 0.0, np.where(finite, share, np.inf))
