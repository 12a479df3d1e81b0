"""Inputs for op programs: seeded random values mixed with the special ones of their dtype."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

#: dtype -> (MLIR element type, NumPy storage dtype).
DTYPES: dict[str, tuple[str, str]] = {
    "i1": ("i1", "u1"),
    "i8": ("i8", "<i1"),
    "i16": ("i16", "<i2"),
    "i32": ("i32", "<i4"),
    "i64": ("i64", "<i8"),
    "ui8": ("ui8", "<u1"),
    "ui16": ("ui16", "<u2"),
    "ui32": ("ui32", "<u4"),
    "ui64": ("ui64", "<u8"),
    "f16": ("f16", "<u2"),
    "bf16": ("bf16", "<u2"),
    "f32": ("f32", "<u4"),
    "f64": ("f64", "<u8"),
    "c64": ("complex<f32>", "<u4"),
    "c128": ("complex<f64>", "<u8"),
}
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
NUMBERS = INTEGERS + FLOATS + COMPLEX
ALL = ("i1", *NUMBERS)

_SPECIAL_FLOATS = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    -7.25,
    1e-3,
    100.0,
]
#: Mantissa and exponent bits.
_LAYOUT = {"f16": (10, 5), "bf16": (7, 8), "f32": (23, 8), "f64": (52, 11)}


def element_type(dtype: str) -> str:
    """MLIR's name of a dtype."""
    return DTYPES[dtype][0]


def tensor(dtype: str, shape: tuple[int | str, ...]) -> str:
    """MLIR's name of a tensor type."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element_type(dtype)}>"


def generator(*name: object) -> np.random.Generator:
    """A generator that depends on the name only."""
    return np.random.default_rng(zlib.crc32(repr(name).encode()))


def encode(dtype: str, values: npt.NDArray[np.float64]) -> npt.NDArray[np.generic]:
    """Bits of a float dtype, rounded to nearest even."""
    if dtype == "f64":
        return values.astype("<f8").view("<u8")
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype("<f4")
        if dtype == "f32":
            return single.view("<u4")
        if dtype == "f16":
            return values.astype("<f2").view("<u2")
    bits = single.view("<u4").astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(single), np.uint16(0x7FC0), rounded)


def decode(dtype: str, bits: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Values of the bits of a float dtype."""
    with np.errstate(invalid="ignore"):  # signaling NaN
        if dtype == "f64":
            return bits.view("<f8").astype(np.float64)
        if dtype == "f32":
            return bits.view("<f4").astype(np.float64)
        if dtype == "f16":
            return bits.view("<f2").astype(np.float64)
        return (bits.astype("<u4") << 16).view("<f4").astype(np.float64)


def random_bytes(rng: np.random.Generator, dtype: str, count: int, kind: str = "any") -> bytes:
    """``count`` values.

    ``kind``: "any" with specials, "tame" without, "small" for indices and counts,
    "divisor" for what the interpreter can divide integers by, "unit" for floats between 0 and 1,
    "bits" for what only moves: floats are any bits, NaN of any sign and content among them,
    "finite" for small floats of both zeros and those below all normal ones, "special" for these with
    infinities and NaN.
    """
    if dtype == "i1":
        return rng.integers(0, 2, count).astype("u1").tobytes()
    if kind == "bits":
        return _bits(rng, dtype, count)
    if dtype in INTEGERS:
        return _integers(rng, dtype, count, kind).tobytes()
    if dtype in COMPLEX:
        part = "f32" if dtype == "c64" else "f64"
        return _floats(rng, part, 2 * count, kind).tobytes()
    return _floats(rng, dtype, count, kind).tobytes()


def _bits(rng: np.random.Generator, dtype: str, count: int) -> bytes:
    """Random bits among values of every kind."""
    storage = np.dtype(DTYPES[dtype][1])
    some = np.frombuffer(random_bytes(rng, dtype, count), f"u{storage.itemsize}")
    whole = rng.integers(0, 2 ** (8 * storage.itemsize) - 1, some.size, some.dtype, endpoint=True)
    if dtype not in INTEGERS:
        mantissa, exponent = _LAYOUT[{"c64": "f32", "c128": "f64"}.get(dtype, dtype)]
        special = some.dtype.type(((1 << exponent) - 1) << mantissa)
        whole = np.where(rng.random(some.size) < 0.5, whole | special, whole)
    return np.where(rng.random(some.size) < 0.5, some, whole).astype(some.dtype).tobytes()


def _integers(rng: np.random.Generator, dtype: str, count: int, kind: str) -> npt.NDArray[np.generic]:
    storage = np.dtype(DTYPES[dtype][1])
    limits = np.iinfo(storage)
    if kind == "small":
        return rng.integers(0, 8, count).astype(storage)
    if kind == "divisor":
        return rng.choice(np.array([1, 2, 3, 7, limits.max], dtype=storage), count)
    values = rng.integers(-9 if limits.min else 0, 10, count).astype(storage)
    if kind == "tame":
        return values
    whole = rng.integers(limits.min, limits.max, count, dtype=storage, endpoint=True)
    values = np.where(rng.random(count) < 0.5, values, whole)
    specials = np.array([0, 1, limits.min, limits.max], dtype=storage)
    return np.where(rng.random(count) < 0.25, rng.choice(specials, count), values).astype(storage)


def _floats(rng: np.random.Generator, dtype: str, count: int, kind: str) -> npt.NDArray[np.generic]:
    if kind == "small":
        return encode(dtype, rng.integers(0, 8, count).astype(np.float64))
    if kind == "unit":
        return encode(dtype, rng.random(count) * 0.98 + 0.01)
    values = encode(dtype, rng.standard_normal(count) * 3)
    if kind == "tame":
        return values
    mantissa, exponent = _LAYOUT[dtype]
    if kind in ("finite", "special"):
        wanted = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5]
        wanted += [np.inf, -np.inf, np.nan] * (kind == "special")
        small = np.array([1, (1 << mantissa) - 1], dtype=values.dtype)
        chosen = np.concatenate([encode(dtype, np.array(wanted)), small]).astype(values.dtype)
        return np.where(rng.random(count) < 0.4, rng.choice(chosen, count), values).astype(values.dtype)
    extremes = np.array([1, 1 << mantissa, (((1 << exponent) - 1) << mantissa) - 1], dtype=values.dtype)
    specials = np.concatenate([encode(dtype, np.array(_SPECIAL_FLOATS)), extremes]).astype(values.dtype)
    return np.where(rng.random(count) < 0.4, rng.choice(specials, count), values).astype(values.dtype)
