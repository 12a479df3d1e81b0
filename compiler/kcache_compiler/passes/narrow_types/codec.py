"""Small floats from their codes and back: integer arithmetic that rounds once, to nearest, ties to even.

Values and codes are those of the package ``ml_dtypes``: what is too large becomes infinity, where there is
none NaN, and where there is no NaN either the largest number; NaN becomes a zero there.
"""

from __future__ import annotations

import struct

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.narrow_types.formats import FORMATS, INTEGERS, POWERS, Format, value_of
from kcache_compiler.passes.narrow_types.integer_emitter import Emitter
from kcache_compiler.passes.narrow_types.operations import Binary

_INFINITY, _NAN = 0x7F800000, 0x7FC00000
_BEYOND = 1 << 20
#: Bits of a wide float -> bits of its mantissa and its bias.
_WIDE = {32: (23, 127), 64: (52, 1023)}


def decode(e: Emitter, byte: mlir.Value, element: str) -> mlir.Value:
    """The f32 of a code, exact."""
    code = e.of_byte(byte)
    if element == POWERS:
        bits = _either(e, _is(e, "EQ", code, 0), 0x400000, e.left(code, e.constant(23)))
        return e.float_of(_either(e, _is(e, "EQ", code, 0xFF), _NAN, bits))
    form = FORMATS[element]
    size = e.both(code, e.constant(form.sign - 1))
    raised = e.left(size, e.constant(23 - form.mantissa))
    normal = e.add(raised, e.constant((127 - form.bias) << 23))
    small = e.bits_of_scaled(size, 2.0 ** (1 - form.bias - form.mantissa))
    bits = e.select(_is(e, "LT", size, 1 << form.mantissa), small, normal)
    if form.infinity is not None:
        bits = _either(e, _is(e, "EQ", size, form.infinity), _INFINITY, bits)
    if form.nan is not None:
        bits = _either(e, _is(e, "GE", size, form.first_nan), _NAN, bits)
    if form.unsigned_zero:
        bits = _either(e, _is(e, "EQ", code, form.sign), _NAN, bits)
    sign = e.left(e.both(code, e.constant(form.sign)), e.constant(32 - form.bits))
    return e.float_of(e.either(bits, sign))


def encode(e: Emitter, number: mlir.Value, element: str, computed: bool = False) -> mlir.Value:
    """The code nearest to a float, of 64 bits where ``e`` is. ``computed``: which NaN it is says nothing."""
    bits = e.bits_of(number)
    size = e.both(bits, e.constant((1 << (e.width - 1)) - 1))
    negative = _is(e, "LT", bits, 0)
    code = _powers(e, size, negative) if element == POWERS else None
    if code is None:
        form = FORMATS[element]
        code = _special(e, form, _nearest(e, form, size), size, negative, computed)
    return e.to_byte(code, "i8")


def rounded(e: Emitter, number: mlir.Value, element: str, above_zero: bool = False) -> mlir.Value:
    """The f32 that a small float has and that is nearest: what ``decode`` makes of ``encode``.

    ``above_zero``: where it is 0, that stands for a number too small for f32.
    """
    if above_zero:
        bits = e.bits_of(number)
        number = e.float_of(_either(e, _is(e, "EQ", bits, 0), 1, bits))
    if element == POWERS:
        return decode(e, encode(e, number, element), element)
    form = FORMATS[element]
    bits = e.bits_of(number)
    size = e.both(bits, e.constant(0x7FFFFFFF))
    cut = 23 - form.mantissa
    odd = e.both(e.right(size, e.constant(cut)), e.constant(1))
    raised = e.add(e.add(size, e.constant((1 << (cut - 1)) - 1)), odd)
    normal = e.both(raised, e.constant(-(1 << cut)))
    small = e.to_multiple(size, 2.0 ** (1 - form.bias - form.mantissa))
    result = e.select(_is(e, "LT", size, (128 - form.bias) << 23), small, normal)
    largest = _bits_of(value_of(form.largest, element))
    has_nan = form.nan is not None or form.unsigned_zero
    above = _INFINITY if form.infinity is not None else _NAN if has_nan else largest
    result = _either(e, _is(e, "GT", result, largest), above, result)
    sign = e.both(bits, e.constant(-(1 << 31)))
    if form.unsigned_zero:
        sign = _either(e, _is(e, "EQ", result, 0), 0, sign)
    result = e.either(result, sign)
    none = _NAN if has_nan else -(1 << 31)
    return e.float_of(_either(e, _is(e, "GT", size, _INFINITY), none, result))


def computed(
    e: Emitter, a: mlir.Value, b: mlir.Value, element: str, op: Binary, above_zero: bool
) -> mlir.Value:
    """What an operation of scalars makes of two f32, rounded."""
    return rounded(e, op(a, b), element, above_zero)


def _bits_of(number: float) -> int:
    return int.from_bytes(struct.pack("<f", number), "little")


def _nearest(e: Emitter, form: Format, size: mlir.Value) -> mlir.Value:
    """The code of a finite magnitude as if the exponent had no end."""
    mantissa, bias = _WIDE[e.width]
    normal = e.subtract(
        _rounded(e, size, e.constant(mantissa - form.mantissa)),
        e.constant((bias - form.bias) << form.mantissa),
    )
    exponent = e.right(size, e.constant(mantissa))
    fraction = e.both(size, e.constant((1 << mantissa) - 1))
    whole = e.either(fraction, e.constant(1 << mantissa))
    expected = e.subtract(e.constant(mantissa + 1 + bias - form.bias - form.mantissa), exponent)
    count = e.select(_is(e, "GT", expected, mantissa + 2), e.constant(mantissa + 2), expected)
    count = e.select(_is(e, "LT", count, 1), e.constant(1), count)
    least = (bias + 1 - form.bias) << mantissa
    return e.select(_is(e, "LT", size, least), _rounded(e, whole, count), normal)


def _rounded(e: Emitter, number: mlir.Value, count: mlir.Value) -> mlir.Value:
    """``number`` without its last ``count`` bits, at least one, to nearest, ties to even."""
    one = e.constant(1)
    odd = e.both(e.right(number, count), one)
    half = e.subtract(e.left(one, e.subtract(count, one)), one)
    return e.right(e.add(e.add(number, half), odd), count)


def _special(
    e: Emitter, form: Format, code: mlir.Value, size: mlir.Value, negative: mlir.Value, computed: bool
) -> mlir.Value:
    """With what is too large, no number, or negative."""
    nan = form.sign if form.unsigned_zero else form.nan
    above = form.infinity if form.infinity is not None else nan
    infinity = e.constant(0x7FF << 52 if e.width == 64 else _INFINITY)
    over = e.either(_is(e, "GT", code, form.largest), e.compare("GE", size, infinity))
    code = _either(e, over, form.largest if above is None else above, code)
    sign = e.select(negative, e.constant(form.sign), e.constant(0))
    if form.unsigned_zero:
        sign = _either(e, _is(e, "EQ", code, 0), 0, sign)
    code = e.either(code, sign)
    # A format without NaN has a zero for it, of the other sign.
    none = e.constant(form.sign if nan is None else nan)
    if nan is None and not computed:
        none = e.select(negative, e.constant(0), none)
    elif nan is not None:
        none = e.either(none, sign)
    return e.select(e.compare("GT", size, infinity), none, code)


def _powers(e: Emitter, size: mlir.Value, negative: mlir.Value) -> mlir.Value:
    """The power of two nearest to a float, the larger of two; NaN for zero and what is negative. As
    ``ml_dtypes`` has it, what is above the least power and below the second is the second.
    """
    mantissa, bias = _WIDE[e.width]
    exponent = e.subtract(e.right(size, e.constant(mantissa)), e.constant(bias - 127))
    half = e.both(e.right(size, e.constant(mantissa - 1)), e.constant(1))
    code = e.add(exponent, half)
    least = 0x400000 if e.width == 32 else (bias - 127) << mantissa
    tiny = e.select(_is(e, "GT", size, least), e.constant(1), e.constant(0))
    code = e.select(_is(e, "LT", size, (bias - 126) << mantissa), tiny, code)
    none = e.either(negative, e.either(_is(e, "EQ", size, 0), _is(e, "GT", code, 0xFE)))
    return _either(e, none, 0xFF, code)


def wrap(e: Emitter, byte: mlir.Value, element: str) -> mlir.Value:
    """The small integer in the low bits of a byte, as that byte holds it."""
    bits = INTEGERS[element]
    whole = e.of_byte(byte)
    if element.startswith("ui"):
        return e.to_byte(e.both(whole, e.constant((1 << bits) - 1)), "ui8")
    count = e.constant(32 - bits)
    return e.to_byte(e.right_signed(e.left(whole, count), count), "i8")


def low_bits(e: Emitter, byte: mlir.Value, bits: int, kind: str) -> mlir.Value:
    """The last ``bits`` bits of a byte; the others are zero."""
    return e.to_byte(e.both(e.of_byte(byte), e.constant((1 << bits) - 1)), kind)


def clamp(e: Emitter, byte: mlir.Value, element: str) -> mlir.Value:
    """The small integer nearest to the number in a byte."""
    bits = INTEGERS[element]
    whole = e.of_byte(byte)
    if element.startswith("ui"):
        low, high = 0, (1 << bits) - 1
    else:
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        count = e.constant(24)
        whole = e.right_signed(e.left(whole, count), count)
    whole = e.select(_is(e, "GT", whole, high), e.constant(high), whole)
    whole = e.select(_is(e, "LT", whole, low), e.constant(low), whole)
    return e.to_byte(whole, "ui8" if element.startswith("ui") else "i8")


def _is(e: Emitter, direction: str, number: mlir.Value, other: int) -> mlir.Value:
    return e.compare(direction, number, e.constant(other))


def _either(e: Emitter, flag: mlir.Value, number: int, other: mlir.Value) -> mlir.Value:
    return e.select(flag, e.constant(number), other)


def less(e: Emitter, byte: mlir.Value, count: int, kind: str) -> mlir.Value:
    """A byte less a number."""
    return e.to_byte(e.subtract(e.of_byte(byte), e.constant(count)), kind)


def moved_up(e: Emitter, byte: mlir.Value, bits: int, count: int) -> mlir.Value:
    """The last ``bits`` bits of a byte in another place of it."""
    low = e.both(e.of_byte(byte), e.constant((1 << bits) - 1))
    return e.to_byte(e.left(low, e.constant(count)), "ui8")


def moved_down(e: Emitter, byte: mlir.Value, bits: int, count: int) -> mlir.Value:
    """``bits`` bits from inside a byte."""
    moved = e.right(e.of_byte(byte), e.constant(count))
    return e.to_byte(e.both(moved, e.constant((1 << bits) - 1)), "ui8")


def single_of(e: Emitter, number: mlir.Value, unsigned: bool) -> mlir.Value:
    """An integer as f32; what is beyond all formats but ``f8E8M0FNU`` as another number beyond them."""
    number = e.signless(number)
    beyond = _is(e, "GT", number, _BEYOND)
    below = _is(e, "LT", number, 0 if unsigned else -_BEYOND)
    number = _either(e, beyond, _BEYOND, number)
    return e.number_of(_either(e, below, _BEYOND if unsigned else -_BEYOND, number))


def without_end(e: Emitter, number: mlir.Value, kind: str) -> mlir.Value:
    """An integer of 64 bits that f64 has, and that is nearest to the same power of two."""
    bits = e.signless(number)
    large = e.either(_is(e, "GT", bits, 1 << 53), _is(e, "LT", bits, 0))
    return e.integer_as(e.select(large, e.both(bits, e.constant(-(1 << 12))), bits), kind)
