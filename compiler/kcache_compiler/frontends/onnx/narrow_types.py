"""Conversions of floats of 8 and 4 bits and integers of 4 and 2, by integer arithmetic on bytes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kcache_compiler.frontends.onnx.emitter import STORAGE_TYPES, Array, Value, buffer_bytes, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode


class _Format(NamedTuple):
    """A narrow float format: bit of the sign, bits of the mantissa, bias of the exponent.

    ``largest``, ``infinity`` and ``nan`` are codes without the sign; with ``unsigned_zero`` the code of -0 is
    the only NaN.
    """

    sign: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None
    nan: int | None
    unsigned_zero: bool = False


_FORMATS = {
    "f8E4M3FN": _Format(0x80, 3, 7, 0x7E, None, 0x7F),
    "f8E4M3FNUZ": _Format(0x80, 3, 8, 0x7F, None, None, True),
    "f8E5M2": _Format(0x80, 2, 15, 0x7B, 0x7C, 0x7E),
    "f8E5M2FNUZ": _Format(0x80, 2, 16, 0x7F, None, None, True),
    "f4E2M1FN": _Format(0x8, 1, 1, 0x7, None, None),
}
NARROW_FLOATS = frozenset({*_FORMATS, "f8E8M0FNU"})
_INFINITY = 0x7F800000


def convert_narrow(n: OnnxNode, x: Value, element: str) -> Value:
    """Convert ``x`` to ``element``, one of which is narrow, with the semantics of ONNX's Cast."""
    if x.element in NARROW_FLOATS:
        return convert_from_wide(n, _widen_float(n, x), element)
    if x.element in STORAGE_TYPES:
        return convert_from_wide(n, _storage_bytes(x), element)
    return convert_from_wide(n, x, element)


def convert_from_wide(n: OnnxNode, x: Value, element: str) -> Value:
    """Convert ``x``, which is not narrow, to ``element``."""
    b = n.b
    if element == "i1":
        return b.compare_to("NE", x, 0)
    if element not in STORAGE_TYPES:
        return b.convert(x, element)
    if element not in NARROW_FLOATS:
        return _wrap_integer(n, x, element)
    if x.element == "f64":
        n.unsupported(
            f"f64 to {element}, which must round once: cast to f32 first if double rounding is acceptable"
        )
    if element == "f8E8M0FNU":
        return _to_power_of_two(n, x)
    return _round_to_narrow(n, b.convert(x, "f32"), element)


def _storage_bytes(x: Value) -> Value:
    """Return the bytes that store narrow elements."""
    storage = STORAGE_TYPES[x.element]
    if x.name or x.constant is None:
        return x._replace(element=storage, constant=None)
    array: Array = np.frombuffer(buffer_bytes(x.constant), "uint8" if storage == "ui8" else "int8")
    return constant_value(array.reshape(x.dims))


def _filled(n: OnnxNode, number: int, x: Value) -> Value:
    return n.b.full(number, x.element, x.dims)


def _mask(n: OnnxNode, x: Value, bits: int) -> Value:
    return n.b.binary("and", x, _filled(n, bits, x))


def _shift(n: OnnxNode, x: Value, count: int) -> Value:
    op = "shift_left" if count > 0 else "shift_right_logical"
    return n.b.binary(op, x, _filled(n, abs(count), x))


def _widen_float(n: OnnxNode, x: Value) -> Value:
    """Return the values of narrow floats in f32, which represents them exactly."""
    b = n.b
    code = b.convert(_storage_bytes(x), "i32")
    if x.element == "f8E8M0FNU":
        bits = b.select(b.compare_to("EQ", code, 0), _filled(n, 0x400000, code), _shift(n, code, 23))
        value = b.unary("bitcast_convert", bits, "f32")
        return b.select(b.compare_to("EQ", code, 0xFF), b.full(math.nan, "f32", x.dims), value)
    format = _FORMATS[x.element]
    magnitude = _mask(n, code, format.sign - 1)
    exponent = _filled(n, (127 - format.bias) << 23, code)
    normal = b.unary(
        "bitcast_convert", b.binary("add", _shift(n, magnitude, 23 - format.mantissa), exponent), "f32"
    )
    subnormal = b.scalar("multiply", b.convert(magnitude, "f32"), 2.0 ** (1 - format.bias - format.mantissa))
    value = b.select(b.compare_to("LT", magnitude, 1 << format.mantissa), subnormal, normal)
    if format.infinity is not None:
        value = b.select(
            b.compare_to("EQ", magnitude, format.infinity), b.full(math.inf, "f32", x.dims), value
        )
    negative = b.compare_to("NE", _mask(n, code, format.sign), 0)
    value = b.select(negative, b.unary("negate", value), value)
    nan = b.full(math.nan, "f32", x.dims)
    if format.unsigned_zero:
        return b.select(b.compare_to("EQ", code, format.sign), nan, value)
    if format.nan is None:
        return value
    first_nan = format.largest + (1 if format.infinity is None else 2)
    return b.select(b.compare_to("GE", magnitude, first_nan), nan, value)


def _round_to_narrow(n: OnnxNode, x: Value, element: str) -> Value:
    """Round to the nearest narrow float, ties to even."""
    b, format = n.b, _FORMATS[element]
    bits = b.unary("bitcast_convert", x, "i32")
    magnitude = _mask(n, bits, 0x7FFFFFFF)
    dropped_bits = 23 - format.mantissa
    last_bit = _mask(n, _shift(n, magnitude, -dropped_bits), 1)
    rounded = b.binary("add", b.scalar("add", magnitude, (1 << dropped_bits - 1) - 1), last_bit)
    code = b.scalar("subtract", _shift(n, rounded, -dropped_bits), (127 - format.bias) << format.mantissa)
    ulps = b.scalar("multiply", b.unary("abs", x), 2.0 ** (format.bias - 1 + format.mantissa))
    least_normal = (128 - format.bias) << 23
    is_subnormal = b.compare_to("LT", magnitude, least_normal)
    ulps = b.select(is_subnormal, ulps, b.full(0, "f32", x.dims))
    subnormal_code = b.convert(b.unary("round_nearest_even", ulps), "i32")
    code = b.select(is_subnormal, subnormal_code, code)
    return _apply_special_codes(n, x, element, code, magnitude)


def _apply_special_codes(n: OnnxNode, x: Value, element: str, code: Value, magnitude: Value) -> Value:
    """Replace the codes of overflow and NaN, and set the sign."""
    b, format = n.b, _FORMATS[element]
    nan = format.sign if format.unsigned_zero else format.nan
    overflows = b.binary(
        "or", b.compare_to("GT", code, format.largest), b.compare_to("GE", magnitude, _INFINITY)
    )
    overflow_code = format.infinity if format.infinity is not None else nan
    if n.int("saturate", 1) or overflow_code is None:
        overflow_code = format.largest
    code = b.select(overflows, _filled(n, overflow_code, code), code)
    negative = b.compare_to("LT", b.unary("bitcast_convert", x, "i32"), 0)
    if format.unsigned_zero:
        negative = b.binary("and", negative, b.compare_to("NE", code, 0))
    signed = b.binary("or", code, _filled(n, format.sign, code))
    code = b.select(negative, signed, code)
    # A format without NaN has zero of the other sign instead, as in the standard's reference.
    if nan is None:
        nan_code = b.select(negative, _filled(n, 0, code), _filled(n, format.sign, code))
    else:
        nan_code = _filled(n, nan, code)
    code = b.select(b.compare_to("GT", magnitude, _INFINITY), nan_code, code)
    return b.convert(code, "ui8")._replace(element=element)


def _to_power_of_two(n: OnnxNode, x: Value) -> Value:
    """Round up to the next power of two."""
    b = n.b
    if (
        x.element not in ("f16", "bf16", "f32")
        or not n.int("saturate", 1)
        or n.text("round_mode", "up") != "up"
    ):
        n.unsupported(f"{x.element} to f8E8M0FNU other than rounding up, with saturation")
    bits = b.unary("bitcast_convert", b.convert(x, "f32"), "i32")
    magnitude = _mask(n, bits, 0x7FFFFFFF)
    round_up = b.convert(b.compare_to("NE", _mask(n, magnitude, 0x7FFFFF), 0), "i32")
    code = b.binary("add", _shift(n, magnitude, -23), round_up)
    tiny = b.convert(b.compare_to("GT", magnitude, 0x400000), "i32")
    code = b.select(b.compare_to("LT", magnitude, 0x800000), tiny, code)
    code = b.binary("minimum", code, _filled(n, 0xFE, code))
    code = b.select(b.compare_to("GT", magnitude, _INFINITY), _filled(n, 0xFF, code), code)
    return b.convert(code, "ui8")._replace(element="f8E8M0FNU")


def _wrap_integer(n: OnnxNode, x: Value, element: str) -> Value:
    """Convert to a narrow integer by its low bits."""
    b = n.b
    width = int(element.lstrip("ui"))
    wide = b.convert(x, "i32")
    low = _mask(n, wide, (1 << width) - 1)
    if element.startswith("i"):
        sign = 1 << width - 1
        low = b.scalar("subtract", b.binary("xor", low, _filled(n, sign, low)), sign)
    return b.convert(low, STORAGE_TYPES[element])._replace(element=element)
