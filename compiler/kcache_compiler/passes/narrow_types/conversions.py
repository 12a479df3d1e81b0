"""Conversions of small elements, which round once, their bits as other elements, and constants as bytes.

Bits are those of one element for several, or of several for one.
"""

from __future__ import annotations

import re

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.narrow_types import codec
from kcache_compiler.passes.narrow_types.formats import INTEGERS, POWERS, carrier, code_of, width
from kcache_compiler.passes.narrow_types.values import apply, encoded, held, like, small, wrapped

_FLOATS = ("f16", "bf16", "f32", "f64")


def converted(number: mlir.Value, element: str) -> mlir.Value:
    """Numbers of a type that is not small as bytes of the small ``element``."""
    source = str(mlir.element_type(number.type))
    if source.startswith("complex"):
        source = str(mlir.element_type(mlir.element_type(number.type)))
        number = mlir.value("stablehlo.real", [number], like(number.type, source))
    if element in INTEGERS:
        byte = mlir.value("stablehlo.convert", [number], like(number.type, carrier(element)))
        if source in _FLOATS:
            return apply(codec.clamp, [byte], carrier(element), element)
        return byte if source == "i1" else wrapped(byte, element)
    if source not in _FLOATS:
        number = _float_of(number, source, element)
    return encoded(number, element)


def _float_of(number: mlir.Value, source: str, element: str) -> mlir.Value:
    """A float that rounds as the integer does."""
    bits, wide = int(source.lstrip("ui")), "f32"
    if bits > 16 and element == POWERS:
        wide = "f64"
        if bits == 64:
            number = apply(codec.without_end, [number], source, source, width=64)
    elif bits > 16:
        return apply(codec.single_of, [number], "f32", source.startswith("ui"), width=bits)
    return mlir.value("stablehlo.convert", [number], like(number.type, wide))


def bitcast(op: mlir.Op, raw: mlir.Value) -> mlir.Value:
    """What ``op`` makes of ``raw``, its operand or the bytes of it: bytes where its result is small."""
    source, target = op.operands[0].type, op.results[0].type
    before, after = _width(source), _width(target)
    if before == after:
        return _as(raw, target)
    dynamic_sizes = None in (*mlir.sizes_of(source), *mlir.sizes_of(target))
    if dynamic_sizes or mlir.among_scalars() or max(before, after) % min(before, after):
        raise UnsupportedOp(mlir.name_of(op), "another width and dynamic sizes", mlir.location_of(op))
    units = raw
    if before > 8:
        units = mlir.value("stablehlo.bitcast_convert", [raw], _shaped(source, "ui8", before // 8))
    if before < min(8, after):
        units = _packed(units, before, min(8, after) // before)
    if after < min(8, before):
        units = _parts(units, after, min(8, before) // after)
    sizes = mlir.sizes_of(target)
    if after > 8:
        units = _reshaped(units, [*sizes, after // 8])
        units = apply(codec.low_bits, [units], "ui8", 8, "ui8")
        return mlir.value("stablehlo.bitcast_convert", [units], target)
    return _as(_reshaped(units, sizes), target)


def _width(kind: mlir.Type) -> int:
    element = small(kind)
    if element:
        return width(element)
    text = str(mlir.element_type(kind))
    if text.startswith("complex"):
        raise UnsupportedOp("stablehlo.bitcast_convert", "complex numbers to or from small elements")
    return int("".join(filter(str.isdigit, text)))


def _as(byte: mlir.Value, target: mlir.Type) -> mlir.Value:
    """The low bits of bytes in the form of the type."""
    element = small(target)
    if element in INTEGERS:
        return wrapped(byte, element)
    kind = carrier(element) if element else str(mlir.element_type(target))
    return apply(codec.low_bits, [byte], kind, _width(target), kind)


def _shaped(kind: mlir.Type, element: str, *more: int) -> mlir.Type:
    sizes = "".join(f"{size}x" for size in (*mlir.sizes_of(kind), *more))
    return mlir.type_of(f"tensor<{sizes}{element}>")


def _reshaped(units: mlir.Value, sizes: list[int | None]) -> mlir.Value:
    kind = mlir.type_of(f"tensor<{''.join(f'{size}x' for size in sizes)}{mlir.element_type(units.type)}>")
    return units if units.type == kind else mlir.value("stablehlo.reshape", [units], kind)


def _packed(units: mlir.Value, bits: int, count: int) -> mlir.Value:
    """Pack neighbors of the last axis into one byte, the first in the lowest bits."""
    *outer, last = mlir.sizes_of(units.type)
    units = _reshaped(units, [*outer, (last or 0) // count, count])
    sizes = mlir.sizes_of(units.type)
    kind = like(units.type, "ui8")
    part = mlir.type_of(str(kind).replace(f"x{count}xui8>", "x1xui8>"))
    result: mlir.Value | None = None
    for position in range(count):
        begin, end = [0] * len(sizes), [*sizes]
        begin[-1], end[-1] = position, position + 1
        steps = _ints([1] * len(sizes))
        element = str(mlir.element_type(units.type))
        cut = mlir.value(
            "stablehlo.slice",
            [units],
            like(part, element),
            start_indices=_ints(begin),
            limit_indices=_ints(end),
            strides=steps,
        )
        moved = apply(codec.moved_up, [cut], "ui8", bits, position * bits)
        result = moved if result is None else mlir.value("stablehlo.or", [result, moved], moved.type)
    assert result is not None
    return _reshaped(result, sizes[:-1])


def _parts(units: mlir.Value, bits: int, count: int) -> mlir.Value:
    """Each byte as this many on a new last axis, the lowest bits first."""
    sizes = [*mlir.sizes_of(units.type), 1]
    parts = [
        _reshaped(apply(codec.moved_down, [units], "ui8", bits, position * bits), sizes)
        for position in range(count)
    ]
    whole = mlir.type_of(f"tensor<{''.join(f'{size}x' for size in sizes[:-1])}{count}xui8>")
    axis = mlir.int_attr(len(sizes) - 1)
    return mlir.value("stablehlo.concatenate", parts, whole, dimension=axis)


def _ints(numbers: list[int | None] | list[int]) -> mlir.Attribute:
    return mlir.attribute(f"array<i64: {', '.join(map(str, numbers))}>")


_RAW = re.compile(r'dense<"0x([0-9A-Fa-f]*)">')
_DENSE = re.compile(r"dense<(.*)> : [^>]*>\Z", re.DOTALL)
_TOKEN = re.compile(r"0x[0-9A-Fa-f]+|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def constant_bytes(op: mlir.Op) -> mlir.Value:
    """The constant ``op`` as bytes, at the current point."""
    kind = op.results[0].type
    element = small(kind)
    codes = _codes(str(op.attributes["value"]), element)
    if carrier(element) == "i8" and element in INTEGERS:
        top = 1 << (width(element) - 1)
        codes = [((code ^ top) - top) & 0xFF for code in codes]
    if not codes:
        content = ""
    elif len(codes) == 1:
        signed = codes[0] - 256 if codes[0] > 127 and carrier(element) == "i8" else codes[0]
        content = str(signed)
    else:
        content = f'"0x{bytes(codes).hex().upper()}"'
    literal = mlir.attribute(f"dense<{content}> : {held(kind)}")
    return mlir.value("stablehlo.constant", (), held(kind), value=literal)


def _codes(literal: str, element: str) -> list[int]:
    raw = _RAW.match(literal)
    if raw:
        mask = (1 << width(element)) - 1
        return [byte & mask for byte in bytes.fromhex(raw[1])]
    match = _DENSE.match(literal)
    if match is None:
        raise InvalidProgram(f"cannot read the constant {literal[:200]}")
    known: dict[str, int] = {}
    return [known.setdefault(token, _code(token, element)) for token in _TOKEN.findall(match[1])]


def _code(token: str, element: str) -> int:
    mask = (1 << width(element)) - 1
    if token.startswith("0x") or element in INTEGERS:
        return int(token, 0) & mask
    return code_of(float(token), element)
