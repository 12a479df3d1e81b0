"""Elementwise operations and conversions of dtypes."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter
from kcache_compiler.frontends.graph.size_expression import Size
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    ANY,
    BITS,
    COMPLEX,
    COMPLEX_OF,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REAL_OF,
    REALS,
    SIGNED,
    Type,
    Value,
    same_dtype,
)
from kcache_compiler.types import DTYPE_BYTES

_ANALYTIC = (*FLOATS, *COMPLEX)
_SAME = "the shape and dtype of `x`"
_BROADCAST = "the shape to which the operands broadcast, in their common dtype"

DIRECTIONS = ("eq", "ne", "lt", "le", "gt", "ge")


def unary(op: str) -> Callable[[Emitter, Value], Value]:
    """Return the builder of an elementwise operation that keeps the dtype."""

    def build(e: Emitter, x: Value) -> Value:
        return e.emit(op, (x,), x.type)

    return build


def predicate(op: str) -> Callable[[Emitter, Value], Value]:
    """Return the builder of an elementwise predicate."""

    def build(e: Emitter, x: Value) -> Value:
        return e.emit(op, (x,), Type("i1", x.dims))

    return build


def complex_part(op: str) -> Callable[[Emitter, Value], Value]:
    """Return the builder of an operation that maps complex numbers to real ones."""

    def build(e: Emitter, x: Value) -> Value:
        return e.emit(op, (x,), Type(REAL_OF.get(x.dtype, x.dtype), x.dims))

    return build


def binary(op: str) -> Callable[[Emitter, Value, Value], Value]:
    """Return the builder of an operation on two operands that broadcast."""

    def build(e: Emitter, lhs: Value, rhs: Value) -> Value:
        same_dtype(lhs, rhs)
        left, right = e.broadcast_together(lhs, rhs)
        return e.emit(op, (left, right), left.type)

    return build


add = binary("add")
subtract = binary("subtract")
multiply = binary("multiply")
divide = binary("divide")
maximum = binary("maximum")
minimum = binary("minimum")
exp = unary("exponential")
log = unary("log")
log1p = unary("log_plus_one")
negate = unary("negate")
sqrt = unary("sqrt")
rsqrt = unary("rsqrt")
tanh = unary("tanh")
logistic = unary("logistic")
erf = unary("chlo.erf")
magnitude = complex_part("abs")


def square(e: Emitter, x: Value) -> Value:
    """Emit ``x * x``."""
    return e.emit("multiply", (x, x), x.type)


def reciprocal(e: Emitter, x: Value) -> Value:
    """Emit ``1 / x``."""
    return e.emit("divide", (e.like(x, 1), x), x.type)


def is_nan(e: Emitter, x: Value) -> Value:
    """Return where ``x`` is NaN, which alone differs from itself."""
    return compare(e, x, x, direction="ne")


def compare(e: Emitter, lhs: Value, rhs: Value, *, direction: str, total_order: bool = False) -> Value:
    """Compare elementwise; the result is i1."""
    dtype = same_dtype(lhs, rhs)
    if dtype in COMPLEX and direction not in ("eq", "ne"):
        raise InvalidProgram(
            f"{lhs} and {rhs} are complex numbers, which have no order: use the direction eq or ne"
        )
    if total_order and dtype not in FLOATS:
        raise InvalidProgram(f"total_order needs floats, and {lhs} has none")
    left, right = e.broadcast_together(lhs, rhs)
    if dtype in FLOATS:
        comparison_type = "TOTALORDER" if total_order else "FLOAT"
    elif dtype in COMPLEX:
        comparison_type = "FLOAT"
    else:
        comparison_type = "SIGNED" if dtype in SIGNED else "UNSIGNED"
    attributes = (
        f"comparison_direction = #stablehlo<comparison_direction {direction.upper()}>, "
        f"compare_type = #stablehlo<comparison_type {comparison_type}>"
    )
    return e.emit("compare", (left, right), Type("i1", left.dims), attributes)


def select(e: Emitter, condition: Value, on_true: Value, on_false: Value) -> Value:
    """Emit ``on_true`` where the condition holds, otherwise ``on_false``."""
    same_dtype(on_true, on_false)
    predicate, left, right = e.broadcast_together(condition, on_true, on_false)
    return e.emit("select", (predicate, left, right), left.type)


def clamp(e: Emitter, low: Value, x: Value, high: Value) -> Value:
    """Clamp ``x`` to bounds that broadcast to it."""
    same_dtype(low, x, high)
    bounds = [bound if not bound.dims else _broadcast_bound(e, bound, x) for bound in (low, high)]
    return e.emit("clamp", (bounds[0], x, bounds[1]), x.type)


def _broadcast_bound(e: Emitter, bound: Value, x: Value) -> Value:
    """Broadcast a bound to the shape of ``x``."""
    left, right = e.broadcast_together(bound, x)
    if right.dims != x.dims:
        raise InvalidProgram(f"the bound {bound} does not broadcast to {x}")
    return left


def convert(e: Emitter, x: Value, *, dtype: str) -> Value:
    """Convert ``x`` to another dtype; return it unchanged if it has it."""
    return x if x.dtype == dtype else e.emit("convert", (x,), Type(dtype, x.dims))


def bitcast(e: Emitter, x: Value, *, dtype: str) -> Value:
    """Reinterpret the bits; a last axis is added or removed if the widths differ."""
    if "i1" in (x.dtype, dtype):
        raise InvalidProgram(f"{x} as {dtype}: i1 has no bit representation; use convert")
    if (x.dtype in COMPLEX) != (dtype in COMPLEX):
        raise InvalidProgram(
            f"{x} as {dtype}: complex dtypes are only cast to complex dtypes; use real and imag"
        )
    old_bytes, new_bytes = DTYPE_BYTES[x.dtype], DTYPE_BYTES[dtype]
    dims: tuple[Size, ...] = x.dims
    if old_bytes > new_bytes:
        dims = (*dims, old_bytes // new_bytes)
    elif new_bytes > old_bytes:
        if not dims or dims[-1] != new_bytes // old_bytes:
            raise InvalidProgram(f"{x} as {dtype}: its last axis must be {new_bytes // old_bytes}")
        dims = dims[:-1]
    return e.emit("bitcast_convert", (x,), Type(dtype, dims))


def reduce_precision(e: Emitter, x: Value, *, exponent_bits: int, mantissa_bits: int) -> Value:
    """Round ``x`` to a float with fewer bits, in its own dtype."""
    if not (1 <= exponent_bits <= 64 and 0 <= mantissa_bits <= 64):
        raise InvalidProgram("exponent_bits must be 1 to 64 and mantissa_bits 0 to 64")
    attributes = f"exponent_bits = {exponent_bits} : i32, mantissa_bits = {mantissa_bits} : i32"
    return e.emit("reduce_precision", (x,), x.type, attributes)


def make_complex(e: Emitter, real: Value, imag: Value) -> Value:
    """Return complex numbers from their parts."""
    dtype = same_dtype(real, imag)
    left, right = e.broadcast_together(real, imag)
    return e.emit("complex", (left, right), Type(COMPLEX_OF[dtype], left.dims))


def _unary_op(name: str, doc: str, dtypes: tuple[str, ...], op: str) -> Op:
    full_name = op if "." in op else f"stablehlo.{op}"
    return Op(name, doc, (Operand("x", dtypes),), unary(op), _SAME, f"`{full_name}`")


def _predicate_op(name: str, doc: str, build: Callable[..., Value], stablehlo: str) -> Op:
    return Op(name, doc, (Operand("x", FLOATS),), build, "the shape of `x`, i1", stablehlo)


def _complex_part_op(name: str, doc: str, dtypes: tuple[str, ...]) -> Op:
    rule = "the shape of `x`; f32 for c64, f64 for c128, otherwise the dtype of `x`"
    return Op(name, doc, (Operand("x", dtypes),), complex_part(name), rule, f"`stablehlo.{name}`")


def _binary_op(name: str, doc: str, dtypes: tuple[str, ...], op: str = "") -> Op:
    op = op or name
    operands = (Operand("lhs", dtypes), Operand("rhs", dtypes))
    return Op(name, doc, operands, binary(op), _BROADCAST, f"`stablehlo.{op}` of the broadcast operands")


UNARY = Group(
    "Elementwise, one operand",
    (
        _complex_part_op(
            "abs", "Absolute value; the magnitude of complex numbers.", (*SIGNED, *FLOATS, *COMPLEX)
        ),
        _unary_op("negate", "-x; unsigned integers wrap around.", NUMBERS, "negate"),
        _unary_op("sign", "-1, 0 or 1; x/|x| for complex numbers.", (*SIGNED, *FLOATS, *COMPLEX), "sign"),
        _unary_op("exp", "e raised to the power x.", _ANALYTIC, "exponential"),
        _unary_op("expm1", "exp(x) - 1.", _ANALYTIC, "exponential_minus_one"),
        _unary_op("log", "Natural logarithm.", _ANALYTIC, "log"),
        _unary_op("log1p", "log(1 + x).", _ANALYTIC, "log_plus_one"),
        _unary_op("sqrt", "Square root.", _ANALYTIC, "sqrt"),
        _unary_op("rsqrt", "1 / sqrt(x).", _ANALYTIC, "rsqrt"),
        _unary_op("cbrt", "Cube root.", FLOATS, "cbrt"),
        _unary_op("sin", "Sine of radians.", _ANALYTIC, "sine"),
        _unary_op("cos", "Cosine of radians.", _ANALYTIC, "cosine"),
        _unary_op("tan", "Tangent of radians.", FLOATS, "tan"),
        _unary_op("sinh", "Hyperbolic sine.", FLOATS, "chlo.sinh"),
        _unary_op("cosh", "Hyperbolic cosine.", FLOATS, "chlo.cosh"),
        _unary_op("tanh", "Hyperbolic tangent.", _ANALYTIC, "tanh"),
        _unary_op("asin", "Inverse sine.", FLOATS, "chlo.asin"),
        _unary_op("acos", "Inverse cosine.", FLOATS, "chlo.acos"),
        _unary_op("atan", "Inverse tangent.", FLOATS, "chlo.atan"),
        _unary_op("asinh", "Inverse hyperbolic sine.", FLOATS, "chlo.asinh"),
        _unary_op("acosh", "Inverse hyperbolic cosine.", FLOATS, "chlo.acosh"),
        _unary_op("atanh", "Inverse hyperbolic tangent.", FLOATS, "chlo.atanh"),
        _unary_op("logistic", "1 / (1 + exp(-x)).", FLOATS, "logistic"),
        _unary_op("erf", "Error function.", FLOATS, "chlo.erf"),
        _unary_op("erfc", "1 - erf(x).", FLOATS, "chlo.erfc"),
        _unary_op("erf_inv", "Inverse of the error function.", FLOATS, "chlo.erf_inv"),
        _unary_op("lgamma", "Logarithm of |gamma(x)|.", FLOATS, "chlo.lgamma"),
        _unary_op("digamma", "Derivative of lgamma.", FLOATS, "chlo.digamma"),
        _unary_op("floor", "Largest integer not above x.", FLOATS, "floor"),
        _unary_op("ceil", "Smallest integer not below x.", FLOATS, "ceil"),
        _unary_op("round", "Nearest integer, ties away from zero.", FLOATS, "round_nearest_afz"),
        _unary_op("round_even", "Nearest integer, ties to even.", FLOATS, "round_nearest_even"),
        Op("square", "x * x.", (Operand("x", NUMBERS),), square, _SAME, "`stablehlo.multiply`"),
        Op(
            "reciprocal",
            "1 / x.",
            (Operand("x", (*FLOATS, *COMPLEX)),),
            reciprocal,
            _SAME,
            "`stablehlo.divide`",
        ),
        _predicate_op(
            "is_finite",
            "Whether x is neither infinite nor NaN.",
            predicate("is_finite"),
            "`stablehlo.is_finite`",
        ),
        _predicate_op(
            "is_inf", "Whether x is infinite, of either sign.", predicate("chlo.is_inf"), "`chlo.is_inf`"
        ),
        _predicate_op("is_nan", "Whether x is NaN.", is_nan, "`stablehlo.compare NE` of `x` with itself"),
        _unary_op("not", "Bitwise not; logical not of i1.", BITS, "not"),
        _unary_op("popcnt", "Number of set bits.", INTEGERS, "popcnt"),
        _unary_op("clz", "Number of leading zero bits.", INTEGERS, "count_leading_zeros"),
        _complex_part_op("real", "Real part.", COMPLEX),
        _complex_part_op("imag", "Imaginary part.", COMPLEX),
        _unary_op("conj", "Complex conjugate.", COMPLEX, "chlo.conj"),
    ),
)

BINARY = Group(
    "Elementwise, several operands",
    (
        _binary_op("add", "lhs + rhs.", NUMBERS),
        _binary_op("subtract", "lhs - rhs.", NUMBERS),
        _binary_op("multiply", "lhs * rhs.", NUMBERS),
        _binary_op("divide", "lhs / rhs; integers are truncated towards zero.", NUMBERS),
        _binary_op("remainder", "Remainder of the truncated division: it has the sign of lhs.", REALS),
        _binary_op("power", "lhs raised to the power rhs.", NUMBERS),
        _binary_op("maximum", "The larger operand; NaN if one is NaN.", ("i1", *REALS)),
        _binary_op("minimum", "The smaller operand; NaN if one is NaN.", ("i1", *REALS)),
        _binary_op("atan2", "Angle of the point (x=rhs, y=lhs), in radians.", FLOATS),
        _binary_op("and", "Bitwise and.", BITS),
        _binary_op("or", "Bitwise or.", BITS),
        _binary_op("xor", "Bitwise exclusive or.", BITS),
        _binary_op("shift_left", "lhs shifted left by rhs bits; 0 if rhs is the width or more.", INTEGERS),
        _binary_op("shift_right_arithmetic", "lhs shifted right, filled with the sign bit.", INTEGERS),
        _binary_op("shift_right_logical", "lhs shifted right, filled with zeros.", INTEGERS),
        Op(
            "complex",
            "Complex numbers from their parts.",
            (Operand("real", ("f32", "f64")), Operand("imag", ("f32", "f64"))),
            make_complex,
            "the shape to which the operands broadcast; c64 for f32, c128 for f64",
            "`stablehlo.complex` of the broadcast operands",
        ),
        Op(
            "compare",
            "Whether lhs is equal to, less than, ... rhs. NaN is unequal to everything, itself included.",
            (Operand("lhs"), Operand("rhs")),
            compare,
            "the shape to which the operands broadcast, i1; complex only with `eq` and `ne`",
            "`stablehlo.compare` of the broadcast operands; signed, unsigned or float by dtype",
            (
                Attribute("direction", "string", "The comparison.", choices=DIRECTIONS),
                Attribute(
                    "total_order",
                    "bool",
                    "Compare floats by the total order of IEEE 754: -NaN < -0 < 0 < NaN.",
                    False,
                ),
            ),
        ),
        Op(
            "select",
            "on_true where the condition is true, on_false elsewhere.",
            (Operand("condition", ("i1",)), Operand("on_true"), Operand("on_false")),
            select,
            "the shape to which all three broadcast, in the common dtype of the last two",
            "`stablehlo.select` of the broadcast operands",
        ),
        Op(
            "clamp",
            "min(max(x, low), high).",
            (Operand("low", ("i1", *REALS)), Operand("x", ("i1", *REALS)), Operand("high", ("i1", *REALS))),
            clamp,
            "the shape and dtype of `x`, to which the bounds broadcast",
            "`stablehlo.clamp`",
        ),
    ),
    "Operands broadcast as in NumPy, and must have one dtype: there are no implicit conversions.",
)

DTYPES = Group(
    "Dtypes",
    (
        Op(
            "convert",
            "The value in another dtype, rounded to the nearest.",
            (Operand("x", ANY),),
            convert,
            "the shape of `x` in `dtype`: i1 is whether it is not 0, floats are truncated to integers, "
            "complex numbers lose their imaginary part",
            "`stablehlo.convert`; nothing if `x` has that dtype",
            (Attribute("dtype", "dtype", "The dtype of the result."),),
        ),
        Op(
            "bitcast",
            "The same bits, reinterpreted as another dtype.",
            (Operand("x", NUMBERS),),
            bitcast,
            "the shape of `x` in `dtype`; a narrower dtype adds a last axis with the parts of an element, "
            "lowest first, and a wider one removes that axis",
            "`stablehlo.bitcast_convert`",
            (Attribute("dtype", "dtype", "The dtype of the result; complex only for complex."),),
        ),
        Op(
            "reduce_precision",
            "x rounded to a float with fewer bits, in its own dtype.",
            (Operand("x", FLOATS),),
            reduce_precision,
            _SAME,
            "`stablehlo.reduce_precision`",
            (
                Attribute("exponent_bits", "int", "At least 1."),
                Attribute("mantissa_bits", "int", "At least 0, without the leading bit."),
            ),
        ),
    ),
)
