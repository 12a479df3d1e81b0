"""Element types, and scalar constants: decoded from bytes, and encoded with one rounding to nearest even."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import NamedTuple


class _FloatFormat(NamedTuple):
    """Bits of significand and exponent, the least exponent of a normal number, and bytes."""

    precision: int
    exponent_bits: int
    least_exponent: int
    width: int


_FLOATS = {
    "f16": _FloatFormat(11, 5, -14, 2),
    "bf16": _FloatFormat(8, 8, -126, 2),
    "f32": _FloatFormat(24, 8, -126, 4),
    "f64": _FloatFormat(53, 11, -1022, 8),
}
_INTEGERS = frozenset({"i1", *(f"{sign}{width}" for sign in ("i", "ui") for width in (2, 4, 8, 16, 32, 64))})


def is_float(element: str) -> bool:
    """Return whether an element type is a float with IEEE arithmetic."""
    return element in _FLOATS


def is_integer(element: str) -> bool:
    """Return whether an element type is an integer or boolean."""
    return element in _INTEGERS


def is_complex(element: str) -> bool:
    """Return whether an element type is complex."""
    return element in ("c64", "c128")


def limits_of(element: str) -> tuple[int, int]:
    """Return the least and greatest value of an integer type."""
    if element == "i1":
        return 0, 1
    width = int(element.lstrip("ui"))
    return (0, (1 << width) - 1) if element.startswith("u") else (-(1 << width - 1), (1 << width - 1) - 1)


def lossless(source: str, target: str) -> bool:
    """Return whether a conversion keeps every value, apart from NaN payloads."""
    if source == target:
        return True
    if source in _FLOATS and target in _FLOATS:
        narrow, wide = _FLOATS[source], _FLOATS[target]
        return narrow.precision <= wide.precision and narrow.exponent_bits <= wide.exponent_bits
    if source in _INTEGERS and target in _INTEGERS and target != "i1":
        (low, high), (least, greatest) = limits_of(source), limits_of(target)
        return least <= low and high <= greatest
    return False


_READERS = {"f16": "<e", "f32": "<f", "f64": "<d"}


def read_scalar(content: str, element: str) -> float | int | None:
    """Return the value of a scalar constant; None of complex numbers and undefined layouts."""
    if content.startswith("=") or not content or is_complex(element):
        return None
    raw = bytes.fromhex(content)
    if element == "bf16":
        return struct.unpack("<f", b"\0\0" + raw)[0]
    if element in _READERS:
        return struct.unpack(_READERS[element], raw)[0]
    return int.from_bytes(raw, "little", signed=element.startswith("i") and element != "i1")


def encode(value: float | Fraction, element: str) -> str:
    """Return a number as constant content: floats are rounded once, integers wrap."""
    if is_integer(element):
        low, high = limits_of(element)
        width = 1 if element == "i1" else max(8, int(element.lstrip("ui"))) // 8
        wrapped = (int(value) - low) % (high - low + 1) + low
        return wrapped.to_bytes(width, "little", signed=low < 0).hex()
    return _encode_float(value, element)


def _encode_float(value: float | Fraction, element: str) -> str:
    precision, exponent_bits, least, width = _FLOATS[element]
    infinite = (1 << exponent_bits) - 1
    negative = math.copysign(1, value) < 0 if isinstance(value, float) else value < 0
    if isinstance(value, float) and not math.isfinite(value):
        fraction = 1 << (precision - 2) if math.isnan(value) else 0
        negative = negative and not math.isnan(value)
        magnitude = (infinite << (precision - 1)) | fraction
    else:
        magnitude = min(_magnitude(abs(Fraction(value)), precision, least), infinite << (precision - 1))
    return (magnitude | int(negative) << (8 * width - 1)).to_bytes(width, "little").hex()


def _magnitude(value: Fraction, precision: int, least: int) -> int:
    """Exponent and fraction bits of a nonnegative number; beyond those of infinity on overflow."""
    if not value:
        return 0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if value < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent, least)
    significand = round(value / Fraction(2) ** (exponent - precision + 1))
    biased = exponent - least
    return (biased << (precision - 1)) + significand


def near(value: float | int | None, target: float, element: str, ulps: int = 4) -> bool:
    """Return whether a constant is within some units in the last place of ``target``, in a float type."""
    if value is None or not is_float(element) or not target:
        return False
    unit = 2.0 ** (math.frexp(target)[1] - _FLOATS[element].precision)
    return abs(value - target) <= ulps * unit
