"""Scalar constants as numbers: read from their bytes, and rounded to an element once, to nearest even."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from kcache_compiler.spec.graph.element_types import is_complex, is_float, is_integer, limits_of

#: float -> (bits of the significand, least exponent of a normal number, bits of exponent, bytes)
_FORMATS = {
    "f16": (11, -14, 5, 2),
    "bf16": (8, -126, 8, 2),
    "f32": (24, -126, 8, 4),
    "f64": (53, -1022, 11, 8),
}
_READERS = {"f16": "<e", "f32": "<f", "f64": "<d"}


def read_scalar(content: str, element: str) -> float | int | None:
    """Return the number that a scalar constant's hex content is; None for complex and unsettled formats."""
    if content.startswith("=") or not content or is_complex(element):
        return None
    raw = bytes.fromhex(content)
    if element == "bf16":
        return struct.unpack("<f", b"\0\0" + raw)[0]
    if element in _READERS:
        return struct.unpack(_READERS[element], raw)[0]
    return int.from_bytes(raw, "little", signed=element.startswith("i") and element != "i1")


def encode(value: float | Fraction, element: str) -> str:
    """Return the hex content of a number in ``element``: floats rounded once, integers modulo 2^n."""
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
    """Return exponent and fraction bits of a number that is not negative; overflow is past infinity."""
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
    """Return a number as the float ``element`` holds it."""
    found = read_scalar(encode(value, element), element)
    assert isinstance(found, float)
    return found


def near(value: float | int | None, wanted: float, element: str, ulps: int = 4) -> bool:
    """Whether a constant is ``wanted`` to some units in the last place of a float ``element``."""
    if value is None or not is_float(element) or not wanted:
        return False
    unit = 2.0 ** (math.frexp(wanted)[1] - _FORMATS[element][0])
    return abs(value - wanted) <= ulps * unit
