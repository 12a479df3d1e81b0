"""Conversions to small elements that round once."""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.narrow_types import codec
from kcache_compiler.passes.narrow_types.formats import INTEGERS, POWERS, carrier
from kcache_compiler.passes.narrow_types.values import apply, encoded, like, wrapped

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
