"""Floats of 8 and 4 bits and integers of 4 and 2: their bits or numbers in bytes, converted by arithmetic."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kcache_compiler.frontends.onnx.emitter import CARRIERS, Array, Value, content_of, known
from kcache_compiler.frontends.onnx.site import Site


class _Format(NamedTuple):
    """A float of ``sign`` (its bit), exponent and ``mantissa`` bits. ``largest``, ``infinity`` and ``nan``
    are codes without the sign; ``unsigned_zero``: the code of -0 is the only NaN.
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


def converted(n: Site, x: Value, element: str) -> Value:
    """``x`` as ``element``, one of which is narrow, as ONNX's Cast has it."""
    if x.element in NARROW_FLOATS:
        return converted_wide(n, _widened(n, x), element)
    if x.element in CARRIERS:
        return converted_wide(n, _carried(x), element)
    return converted_wide(n, x, element)


def converted_wide(n: Site, x: Value, element: str) -> Value:
    """``x``, which is not narrow, as ``element``."""
    b = n.b
    if element == "i1":
        return b.compare_to("NE", x, 0)
    if element not in CARRIERS:
        return b.convert(x, element)
    if element not in NARROW_FLOATS:
        return _wrapped(n, x, element)
    if x.element == "f64":
        n.unsupported(f"f64 to {element}, which rounds once: cast to f32 first where twice is good enough")
    if element == "f8E8M0FNU":
        return _powers(n, x)
    return _rounded(n, b.convert(x, "f32"), element)


def _carried(x: Value) -> Value:
    """The bytes that stand for narrow elements."""
    carrier = CARRIERS[x.element]
    if x.name or x.known is None:
        return x._replace(element=carrier, known=None)
    whole: Array = np.frombuffer(content_of(x.known), "uint8" if carrier == "ui8" else "int8")
    return known(whole.reshape(x.dims))


def _number(n: Site, number: int, x: Value) -> Value:
    return n.b.full(number, x.element, x.dims)


def _and(n: Site, x: Value, bits: int) -> Value:
    return n.b.binary("and", x, _number(n, bits, x))


def _shifted(n: Site, x: Value, count: int) -> Value:
    op = "shift_left" if count > 0 else "shift_right_logical"
    return n.b.binary(op, x, _number(n, abs(count), x))


def _widened(n: Site, x: Value) -> Value:
    """The numbers of narrow floats, in f32, which has them all."""
    b = n.b
    code = b.convert(_carried(x), "i32")
    if x.element == "f8E8M0FNU":
        bits = b.select(b.compare_to("EQ", code, 0), _number(n, 0x400000, code), _shifted(n, code, 23))
        value = b.unary("bitcast_convert", bits, "f32")
        return b.select(b.compare_to("EQ", code, 0xFF), b.full(math.nan, "f32", x.dims), value)
    form = _FORMATS[x.element]
    size = _and(n, code, form.sign - 1)
    exponent = _number(n, (127 - form.bias) << 23, code)
    normal = b.unary(
        "bitcast_convert", b.binary("add", _shifted(n, size, 23 - form.mantissa), exponent), "f32"
    )
    small = b.scalar("multiply", b.convert(size, "f32"), 2.0 ** (1 - form.bias - form.mantissa))
    value = b.select(b.compare_to("LT", size, 1 << form.mantissa), small, normal)
    if form.infinity is not None:
        value = b.select(b.compare_to("EQ", size, form.infinity), b.full(math.inf, "f32", x.dims), value)
    negative = b.compare_to("NE", _and(n, code, form.sign), 0)
    value = b.select(negative, b.unary("negate", value), value)
    nan = b.full(math.nan, "f32", x.dims)
    if form.unsigned_zero:
        return b.select(b.compare_to("EQ", code, form.sign), nan, value)
    if form.nan is None:
        return value
    first = form.largest + (1 if form.infinity is None else 2)
    return b.select(b.compare_to("GE", size, first), nan, value)


def _rounded(n: Site, x: Value, element: str) -> Value:
    """The nearest narrow floats, those to even where two are as near."""
    b, form = n.b, _FORMATS[element]
    bits = b.unary("bitcast_convert", x, "i32")
    size = _and(n, bits, 0x7FFFFFFF)
    cut = 23 - form.mantissa
    odd = _and(n, _shifted(n, size, -cut), 1)
    raised = b.binary("add", b.scalar("add", size, (1 << cut - 1) - 1), odd)
    code = b.scalar("subtract", _shifted(n, raised, -cut), (127 - form.bias) << form.mantissa)
    steps = b.scalar("multiply", b.unary("abs", x), 2.0 ** (form.bias - 1 + form.mantissa))
    least = (128 - form.bias) << 23
    is_small = b.compare_to("LT", size, least)
    steps = b.select(is_small, steps, b.full(0, "f32", x.dims))
    small = b.convert(b.unary("round_nearest_even", steps), "i32")
    code = b.select(is_small, small, code)
    return _finished(n, x, element, code, size)


def _finished(n: Site, x: Value, element: str, code: Value, size: Value) -> Value:
    """Codes of what is too large, no number, or negative."""
    b, form = n.b, _FORMATS[element]
    nan = form.sign if form.unsigned_zero else form.nan
    over = b.binary("or", b.compare_to("GT", code, form.largest), b.compare_to("GE", size, _INFINITY))
    above = form.infinity if form.infinity is not None else nan
    if n.int("saturate", 1) or above is None:
        above = form.largest
    code = b.select(over, _number(n, above, code), code)
    negative = b.compare_to("LT", b.unary("bitcast_convert", x, "i32"), 0)
    if form.unsigned_zero:
        negative = b.binary("and", negative, b.compare_to("NE", code, 0))
    signed = b.binary("or", code, _number(n, form.sign, code))
    code = b.select(negative, signed, code)
    # A format without NaN has zero for it, of the other sign: what the standard's reference makes.
    if nan is None:
        none = b.select(negative, _number(n, 0, code), _number(n, form.sign, code))
    else:
        none = _number(n, nan, code)
    code = b.select(b.compare_to("GT", size, _INFINITY), none, code)
    return b.convert(code, "ui8")._replace(element=element)


def _powers(n: Site, x: Value) -> Value:
    """The next power of two, up."""
    b = n.b
    if (
        x.element not in ("f16", "bf16", "f32")
        or not n.int("saturate", 1)
        or n.text("round_mode", "up") != "up"
    ):
        n.unsupported(f"{x.element} to f8E8M0FNU but to the next power above, with saturation")
    bits = b.unary("bitcast_convert", b.convert(x, "f32"), "i32")
    size = _and(n, bits, 0x7FFFFFFF)
    rest = b.convert(b.compare_to("NE", _and(n, size, 0x7FFFFF), 0), "i32")
    code = b.binary("add", _shifted(n, size, -23), rest)
    tiny = b.convert(b.compare_to("GT", size, 0x400000), "i32")
    code = b.select(b.compare_to("LT", size, 0x800000), tiny, code)
    code = b.binary("minimum", code, _number(n, 0xFE, code))
    code = b.select(b.compare_to("GT", size, _INFINITY), _number(n, 0xFF, code), code)
    return b.convert(code, "ui8")._replace(element="f8E8M0FNU")


def _wrapped(n: Site, x: Value, element: str) -> Value:
    """Integers of few bits: the low bits of what is larger."""
    b = n.b
    width = int(element.lstrip("ui"))
    whole = b.convert(x, "i32")
    low = _and(n, whole, (1 << width) - 1)
    if element.startswith("i"):
        sign = 1 << width - 1
        low = b.scalar("subtract", b.binary("xor", low, _number(n, sign, low)), sign)
    return b.convert(low, CARRIERS[element])._replace(element=element)
