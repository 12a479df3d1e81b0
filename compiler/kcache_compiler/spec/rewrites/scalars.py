"""Scalar constants: decoding from bytes, and encoding with one rounding to nearest even."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from kcache_compiler.spec.graph.element_types import is_complex, is_float, is_integer, limits_of

#: (Bits of the significand, least exponent of a normal number, bits of exponent, bytes) of floats.
_FORMATS = {
    "f16": (11, -14, 5, 2),
    "bf16": (8, -126, 8, 2),
    "f32": (24, -126, 8, 4),
    "f64": (53, -1022, 11, 8),
}
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
    precision, least, exponent_bits, width = _FORMATS[element]
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


def rounded(value: float | Fraction, element: str) -> float:
    """Return a number rounded to a float type."""
    result = read_scalar(encode(value, element), element)
    assert isinstance(result, float)
    return result


def near(value: float | int | None, target: float, element: str, ulps: int = 4) -> bool:
    """Return whether a constant is within some units in the last place of ``target``, in a float type."""
    if value is None or not is_float(element) or not target:
        return False
    unit = 2.0 ** (math.frexp(target)[1] - _FORMATS[element][0])
    return abs(value - target) <= ulps * unit
