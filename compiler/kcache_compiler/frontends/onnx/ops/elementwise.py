"""Elementwise operators and conversions of element types."""

from __future__ import annotations

import functools
import math

import numpy as np

from kcache_compiler.frontends.onnx.builder import limits_of
from kcache_compiler.frontends.onnx.emitter import FLOATS, INTEGERS, STORAGE_TYPES, Value, astype
from kcache_compiler.frontends.onnx.narrow_types import convert_narrow
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.proto import data_type_name, element_name

_UNARY = {
    "Abs": (13, "abs"),
    "Acos": (22, "chlo.acos"),
    "Acosh": (22, "chlo.acosh"),
    "Asin": (22, "chlo.asin"),
    "Asinh": (22, "chlo.asinh"),
    "Atan": (22, "chlo.atan"),
    "Atanh": (22, "chlo.atanh"),
    "BitwiseNot": (18, "not"),
    "Ceil": (13, "ceil"),
    "Cos": (22, "cosine"),
    "Cosh": (22, "chlo.cosh"),
    "Erf": (13, "chlo.erf"),
    "Exp": (13, "exponential"),
    "Floor": (13, "floor"),
    "Log": (13, "log"),
    "Neg": (13, "negate"),
    "Not": (1, "not"),
    "Round": (22, "round_nearest_even"),
    "Sigmoid": (13, "logistic"),
    "Sign": (13, "sign"),
    "Sin": (22, "sine"),
    "Sinh": (22, "chlo.sinh"),
    "Sqrt": (13, "sqrt"),
    "Tan": (22, "tan"),
    "Tanh": (13, "tanh"),
}
_BINARY = {
    "Add": (14, "add"),
    "And": (7, "and"),
    "BitwiseAnd": (18, "and"),
    "BitwiseOr": (18, "or"),
    "BitwiseXor": (18, "xor"),
    "Div": (14, "divide"),
    "Mul": (14, "multiply"),
    "Or": (7, "or"),
    "PRelu": (16, "prelu"),
    "Sub": (14, "subtract"),
    "Xor": (7, "xor"),
}
_COMPARISONS = {
    "Equal": (19, "EQ"),
    "Greater": (13, "GT"),
    "GreaterOrEqual": (16, "GE"),
    "Less": (13, "LT"),
    "LessOrEqual": (16, "LE"),
}
#: The largest finite value of f32.
_LARGEST_F32 = float(np.finfo(np.float32).max)
#: (float, element type of an exponent) such that the float represents all its values.
_EXACTLY_REPRESENTED = {
    *(("f16", e) for e in ("i8", "ui8")),
    *(("bf16", e) for e in ("i8", "ui8")),
    *(("f32", e) for e in ("i8", "ui8", "i16", "ui16", "f16", "bf16")),
    *(("f64", e) for e in ("i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64", "f16", "bf16", "f32")),
}
_VARIADIC = {"Max": (13, "maximum"), "Min": (13, "minimum"), "Sum": (13, "add"), "Mean": (13, "add")}


@legalize(**{op: version for op, (version, _) in _UNARY.items()})
def unary(n: OnnxNode) -> Value:
    op = _UNARY[n.op][1]
    x = n[0]
    if op in ("abs", "sign") and x.element.startswith("ui"):
        return _unsigned(n, x)
    if op in ("ceil", "floor", "round_nearest_even") and x.element in INTEGERS:
        return x
    if n.op == "Erf" and x.element not in FLOATS:
        n.unsupported(
            f"of {x.element}, which the standard allows but does not define: cast its input to floats"
        )
    return n.b.unary(op, x)


def _unsigned(n: OnnxNode, x: Value) -> Value:
    return x if n.op == "Abs" else n.b.convert(n.b.compare_to("NE", x, 0), x.element)


@legalize(**{op: version for op, (version, _) in _BINARY.items()})
def binary(n: OnnxNode) -> Value:
    if n.op == "PRelu":
        x, slope = n[0], n.b.broadcast(n[1], n[0].dims)
        negative = n.b.compare_to("LT", x, 0)
        return n.b.select(negative, n.b.binary("multiply", slope, x), x)
    return n.b.binary(_BINARY[n.op][1], n[0], n[1])


@legalize(**{op: version for op, (version, _) in _COMPARISONS.items()})
def comparison(n: OnnxNode) -> Value:
    return n.b.compare(_COMPARISONS[n.op][1], n[0], n[1])


@legalize(**{op: version for op, (version, _) in _VARIADIC.items()})
def variadic(n: OnnxNode) -> Value:
    op = _VARIADIC[n.op][1]
    total = functools.reduce(lambda x, y: n.b.binary(op, x, y), n.all() or [n[0]])
    return n.b.scalar("divide", total, len(n.inputs)) if n.op == "Mean" else total


@legalize(Mod=28)
def mod(n: OnnxNode) -> Value:
    remainder = n.b.binary("remainder", n[0], n[1])
    if n.int("fmod", 0) or remainder.element.startswith("ui"):
        return remainder
    # The result has the sign of the divisor.
    _, divisor = n.b.broadcast_together(n[0], n[1])
    signs_differ = n.b.compare("NE", n.b.compare_to("LT", remainder, 0), n.b.compare_to("LT", divisor, 0))
    is_adjusted = n.b.binary("and", signs_differ, n.b.compare_to("NE", remainder, 0))
    return n.b.select(is_adjusted, n.b.binary("add", remainder, divisor), remainder)


@legalize(Pow=15)
def power(n: OnnxNode) -> Value:
    x, y = n[0], n[1]
    wide = x.element if _represents(x.element, y) else _common_element(x.element, y.element)
    return n.b.convert(n.b.binary("power", n.b.convert(x, wide), n.b.convert(y, wide)), x.element)


def _represents(element: str, exponent: Value) -> bool:
    """Return whether ``element`` represents each exponent: its constants, or all values of its type."""
    if exponent.constant is not None:
        elements = astype(exponent.constant, element)
        return bool(np.array_equal(astype(elements, exponent.element), exponent.constant))
    if element in FLOATS or exponent.element in FLOATS:
        return exponent.element == element or (element, exponent.element) in _EXACTLY_REPRESENTED
    low, high = limits_of(exponent.element)
    least, greatest = limits_of(element)
    return least <= low and high <= greatest


def _common_element(base: str, exponent: str) -> str:
    """Return an element type for both; for integers one whose low bits are those of the result."""
    if base in INTEGERS and exponent in INTEGERS:
        return "ui64" if exponent.startswith("ui") else "i64"
    narrow = ("f16", "bf16", "i8", "ui8", "i16", "ui16")
    return "f32" if base in ("f16", "bf16") and exponent in (*narrow, "f32") else "f64"


@legalize(BitShift=28)
def bit_shift(n: OnnxNode) -> Value:
    if n.text("direction") == "LEFT":
        return n.b.binary("shift_left", n[0], n[1])
    signed = not n[0].element.startswith("ui")
    return n.b.binary("shift_right_arithmetic" if signed else "shift_right_logical", n[0], n[1])


@legalize(Reciprocal=13)
def reciprocal(n: OnnxNode) -> Value:
    return n.b.binary("divide", n.b.full(1, n[0].element, n[0].dims), n[0])


@legalize(IsNaN=20)
def is_nan(n: OnnxNode) -> Value:
    return n.b.compare("NE", n[0], n[0])


@legalize(IsInf=20)
def is_inf(n: OnnxNode) -> Value:
    positive, negative = n.int("detect_positive", 1), n.int("detect_negative", 1)
    x = n[0]
    if positive and negative:
        return n.b.compare_to("EQ", n.b.unary("abs", x), math.inf)
    if positive or negative:
        return n.b.compare_to("EQ", x, math.inf if positive else -math.inf)
    return n.b.full(False, "i1", x.dims)


@legalize(Where=16)
def where(n: OnnxNode) -> Value:
    return n.b.select(n[0], n[1], n[2])


@legalize(Clip=13)
def clip(n: OnnxNode) -> Value:
    x = n[0]
    low, high = n.get(1), n.get(2)
    if n.version < 11:
        # Attributes, whose defaults clamp infinities; they exceed the range of half-precision floats.
        bounded = x.element in ("f32", "f64")
        low = n.b.full(n.float("min", -_LARGEST_F32), x.element) if n.has("min") or bounded else None
        high = n.b.full(n.float("max", _LARGEST_F32), x.element) if n.has("max") or bounded else None
    if low is not None:
        x = n.b.binary("maximum", x, n.b.reshape(low, ()))
    return x if high is None else n.b.binary("minimum", x, n.b.reshape(high, ()))


@legalize(Cast=28, CastLike=25)
def cast(n: OnnxNode) -> Value:
    if n.op == "CastLike":
        return convert(n, n[0], n[1].element)
    return convert(n, n[0], element_of(n, n.int("to")))


def element_of(n: OnnxNode, data_type: int) -> str:
    """Return the element type of an ONNX data type."""
    element = element_name(data_type)
    if element is None:
        n.unsupported(f"elements of type {data_type_name(data_type)}, which buffers do not support")
    return element


def convert(n: OnnxNode, x: Value, element: str) -> Value:
    """Convert with ONNX's semantics: floats to integers toward zero, anything to bool by ``!= 0``."""
    if x.element != element and (x.element in STORAGE_TYPES or element in STORAGE_TYPES):
        return convert_narrow(n, x, element)
    if x.constant is not None and not x.name and x.element != element:
        return Value("", element, x.dims, astype(x.constant, element))
    if element == "i1" and x.element != "i1":
        return n.b.compare_to("NE", x, 0)
    return n.b.convert(x, element)


@legalize(BitCast=26)
def bit_cast(n: OnnxNode) -> Value:
    element = element_of(n, n.int("to"))
    if n[0].element == "i1" and element in ("i8", "ui8"):
        return n.b.convert(n[0], element)
    if "i1" in (element, n[0].element) and element != n[0].element:
        n.unsupported("a bool is a byte of 0 or 1, unlike the bits of other types")
    return n.b.unary("bitcast_convert", n[0], element)


def saturating_convert(n: OnnxNode, x: Value, element: str) -> Value:
    """Convert a float to the nearest value of an integer type."""
    low, high = limits_of(element)
    clamped = n.b.scalar("minimum", n.b.scalar("maximum", x, low), high)
    return n.b.convert(clamped, STORAGE_TYPES.get(element, element))._replace(element=element)
