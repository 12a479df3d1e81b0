"""Operations that work element by element, and those that change the dtype."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter
from kcache_compiler.frontends.graph.extent import Size
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    ANY,
    BITS,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    PART,
    REALS,
    SIGNED,
    WHOLE,
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
    """The builder of an operation on each element that keeps the dtype."""

    def build(e: Emitter, x: Value) -> Value:
        return e.emit(op, (x,), x.type)

    return build


def predicate(op: str) -> Callable[[Emitter, Value], Value]:
    """The builder of a question to each element."""

    def build(e: Emitter, x: Value) -> Value:
        return e.emit(op, (x,), Type("i1", x.dims))

    return build


def part(op: str) -> Callable[[Emitter, Value], Value]:
    """The builder of what takes complex numbers to real ones."""

    def build(e: Emitter, x: Value) -> Value:
        return e.emit(op, (x,), Type(PART.get(x.dtype, x.dtype), x.dims))

    return build


def binary(op: str) -> Callable[[Emitter, Value, Value], Value]:
    """The builder of an operation on two values that broadcast."""

    def build(e: Emitter, lhs: Value, rhs: Value) -> Value:
        same_dtype(lhs, rhs)
        left, right = e.aligned(lhs, rhs)
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
magnitude = part("abs")


def square(e: Emitter, x: Value) -> Value:
    """``x * x``."""
    return e.emit("multiply", (x, x), x.type)


def reciprocal(e: Emitter, x: Value) -> Value:
    """``1 / x``."""
    return e.emit("divide", (e.like(x, 1), x), x.type)


def is_nan(e: Emitter, x: Value) -> Value:
    """NaN alone differs from itself."""
    return compare(e, x, x, direction="ne")


def compare(e: Emitter, lhs: Value, rhs: Value, *, direction: str, total_order: bool = False) -> Value:
    """i1 for each pair."""
    dtype = same_dtype(lhs, rhs)
    if dtype in COMPLEX and direction not in ("eq", "ne"):
        raise InvalidProgram(f"{lhs} and {rhs} are complex, which have no order: direction is eq or ne")
    if total_order and dtype not in FLOATS:
        raise InvalidProgram(f"total_order is for floats, and {lhs} is none")
    left, right = e.aligned(lhs, rhs)
    if dtype in FLOATS:
        kind = "TOTALORDER" if total_order else "FLOAT"
    elif dtype in COMPLEX:
        kind = "FLOAT"
    else:
        kind = "SIGNED" if dtype in SIGNED else "UNSIGNED"
    attributes = (
        f"comparison_direction = #stablehlo<comparison_direction {direction.upper()}>, "
        f"compare_type = #stablehlo<comparison_type {kind}>"
    )
    return e.emit("compare", (left, right), Type("i1", left.dims), attributes)


def select(e: Emitter, condition: Value, on_true: Value, on_false: Value) -> Value:
    """One of two values, element by element."""
    same_dtype(on_true, on_false)
    chosen, left, right = e.aligned(condition, on_true, on_false)
    return e.emit("select", (chosen, left, right), left.type)


def clamp(e: Emitter, low: Value, x: Value, high: Value) -> Value:
    """``x`` within bounds, which broadcast to it."""
    same_dtype(low, x, high)
    bounds = [bound if not bound.dims else _to(e, bound, x) for bound in (low, high)]
    return e.emit("clamp", (bounds[0], x, bounds[1]), x.type)


def _to(e: Emitter, bound: Value, x: Value) -> Value:
    left, right = e.aligned(bound, x)
    if right.dims != x.dims:
        raise InvalidProgram(f"the bound {bound} does not broadcast to {x}")
    return left


def convert(e: Emitter, x: Value, *, dtype: str) -> Value:
    """``x`` in another dtype; itself where it has it."""
    return x if x.dtype == dtype else e.emit("convert", (x,), Type(dtype, x.dims))


def bitcast(e: Emitter, x: Value, *, dtype: str) -> Value:
    """The same bits; a last axis appears or goes where the widths differ."""
    if "i1" in (x.dtype, dtype):
        raise InvalidProgram(f"{x} as {dtype}: i1 has no bits of its own; use convert")
    if (x.dtype in COMPLEX) != (dtype in COMPLEX):
        raise InvalidProgram(f"{x} as {dtype}: complex is only cast to complex; use real and imag")
    have, want = DTYPE_BYTES[x.dtype], DTYPE_BYTES[dtype]
    dims: tuple[Size, ...] = x.dims
    if have > want:
        dims = (*dims, have // want)
    elif want > have:
        if not dims or dims[-1] != want // have:
            raise InvalidProgram(f"{x} as {dtype}: its last axis must be {want // have}")
        dims = dims[:-1]
    return e.emit("bitcast_convert", (x,), Type(dtype, dims))


def reduce_precision(e: Emitter, x: Value, *, exponent_bits: int, mantissa_bits: int) -> Value:
    """``x`` as a narrower float would hold it."""
    if not (1 <= exponent_bits <= 64 and 0 <= mantissa_bits <= 64):
        raise InvalidProgram("exponent_bits is from 1 and mantissa_bits from 0, both to 64")
    attributes = f"exponent_bits = {exponent_bits} : i32, mantissa_bits = {mantissa_bits} : i32"
    return e.emit("reduce_precision", (x,), x.type, attributes)


def make_complex(e: Emitter, real: Value, imag: Value) -> Value:
    """A complex number from its parts."""
    dtype = same_dtype(real, imag)
    left, right = e.aligned(real, imag)
    return e.emit("complex", (left, right), Type(WHOLE[dtype], left.dims))


def _unary(name: str, doc: str, dtypes: tuple[str, ...], op: str) -> Op:
    full = op if "." in op else f"stablehlo.{op}"
    return Op(name, doc, (Operand("x", dtypes),), unary(op), _SAME, f"`{full}`")


def _asked(name: str, doc: str, build: Callable[..., Value], stablehlo: str) -> Op:
    return Op(name, doc, (Operand("x", FLOATS),), build, "the shape of `x`, i1", stablehlo)


def _part(name: str, doc: str, dtypes: tuple[str, ...]) -> Op:
    rule = "the shape of `x`; c64 gives f32 and c128 gives f64, other dtypes stay"
    return Op(name, doc, (Operand("x", dtypes),), part(name), rule, f"`stablehlo.{name}`")


def _binary(name: str, doc: str, dtypes: tuple[str, ...], op: str = "") -> Op:
    op = op or name
    operands = (Operand("lhs", dtypes), Operand("rhs", dtypes))
    return Op(name, doc, operands, binary(op), _BROADCAST, f"`stablehlo.{op}` of the broadcast operands")


UNARY = Group(
    "Elementwise, one operand",
    (
        _part("abs", "Absolute value; of complex numbers the magnitude.", (*SIGNED, *FLOATS, *COMPLEX)),
        _unary("negate", "-x; unsigned integers wrap around.", NUMBERS, "negate"),
        _unary("sign", "-1, 0 or 1; x/|x| of complex numbers.", (*SIGNED, *FLOATS, *COMPLEX), "sign"),
        _unary("exp", "e to the power of x.", _ANALYTIC, "exponential"),
        _unary("expm1", "exp(x) - 1.", _ANALYTIC, "exponential_minus_one"),
        _unary("log", "Natural logarithm.", _ANALYTIC, "log"),
        _unary("log1p", "log(1 + x).", _ANALYTIC, "log_plus_one"),
        _unary("sqrt", "Square root.", _ANALYTIC, "sqrt"),
        _unary("rsqrt", "1 / sqrt(x).", _ANALYTIC, "rsqrt"),
        _unary("cbrt", "Cube root.", FLOATS, "cbrt"),
        _unary("sin", "Sine of radians.", _ANALYTIC, "sine"),
        _unary("cos", "Cosine of radians.", _ANALYTIC, "cosine"),
        _unary("tan", "Tangent of radians.", FLOATS, "tan"),
        _unary("sinh", "Hyperbolic sine.", FLOATS, "chlo.sinh"),
        _unary("cosh", "Hyperbolic cosine.", FLOATS, "chlo.cosh"),
        _unary("tanh", "Hyperbolic tangent.", _ANALYTIC, "tanh"),
        _unary("asin", "Inverse sine.", FLOATS, "chlo.asin"),
        _unary("acos", "Inverse cosine.", FLOATS, "chlo.acos"),
        _unary("atan", "Inverse tangent.", FLOATS, "chlo.atan"),
        _unary("asinh", "Inverse hyperbolic sine.", FLOATS, "chlo.asinh"),
        _unary("acosh", "Inverse hyperbolic cosine.", FLOATS, "chlo.acosh"),
        _unary("atanh", "Inverse hyperbolic tangent.", FLOATS, "chlo.atanh"),
        _unary("logistic", "1 / (1 + exp(-x)).", FLOATS, "logistic"),
        _unary("erf", "Error function.", FLOATS, "chlo.erf"),
        _unary("erfc", "1 - erf(x).", FLOATS, "chlo.erfc"),
        _unary("erf_inv", "Inverse of the error function.", FLOATS, "chlo.erf_inv"),
        _unary("lgamma", "Logarithm of |gamma(x)|.", FLOATS, "chlo.lgamma"),
        _unary("digamma", "Derivative of lgamma.", FLOATS, "chlo.digamma"),
        _unary("floor", "Largest integer that is not above x.", FLOATS, "floor"),
        _unary("ceil", "Smallest integer that is not below x.", FLOATS, "ceil"),
        _unary("round", "Nearest integer, halves away from zero.", FLOATS, "round_nearest_afz"),
        _unary("round_even", "Nearest integer, halves to even.", FLOATS, "round_nearest_even"),
        Op("square", "x * x.", (Operand("x", NUMBERS),), square, _SAME, "`stablehlo.multiply`"),
        Op(
            "reciprocal",
            "1 / x.",
            (Operand("x", (*FLOATS, *COMPLEX)),),
            reciprocal,
            _SAME,
            "`stablehlo.divide`",
        ),
        _asked("is_finite", "Neither infinite nor NaN.", predicate("is_finite"), "`stablehlo.is_finite`"),
        _asked("is_inf", "Infinite, of either sign.", predicate("chlo.is_inf"), "`chlo.is_inf`"),
        _asked("is_nan", "NaN.", is_nan, "`stablehlo.compare NE` of `x` with itself"),
        _unary("not", "Every bit inverted; of i1 the other one.", BITS, "not"),
        _unary("popcnt", "Number of bits that are set.", INTEGERS, "popcnt"),
        _unary("clz", "Number of leading zero bits.", INTEGERS, "count_leading_zeros"),
        _part("real", "Real part.", COMPLEX),
        _part("imag", "Imaginary part.", COMPLEX),
        _unary("conj", "Complex conjugate.", COMPLEX, "chlo.conj"),
    ),
)

BINARY = Group(
    "Elementwise, several operands",
    (
        _binary("add", "lhs + rhs.", NUMBERS),
        _binary("subtract", "lhs - rhs.", NUMBERS),
        _binary("multiply", "lhs * rhs.", NUMBERS),
        _binary("divide", "lhs / rhs; integers are truncated towards zero.", NUMBERS),
        _binary("remainder", "Remainder of the truncated division: it has the sign of lhs.", REALS),
        _binary("power", "lhs to the power of rhs.", NUMBERS),
        _binary("maximum", "The larger one; NaN where one is NaN.", ("i1", *REALS)),
        _binary("minimum", "The smaller one; NaN where one is NaN.", ("i1", *REALS)),
        _binary("atan2", "Angle of the point (x=rhs, y=lhs), in radians.", FLOATS),
        _binary("and", "Bitwise and.", BITS),
        _binary("or", "Bitwise or.", BITS),
        _binary("xor", "Bitwise exclusive or.", BITS),
        _binary("shift_left", "lhs shifted by rhs bits; 0 from the width on.", INTEGERS),
        _binary("shift_right_arithmetic", "The sign bit moves in; only that from the width on.", INTEGERS),
        _binary("shift_right_logical", "Zeros move in; 0 from the width on.", INTEGERS),
        Op(
            "complex",
            "A complex number from its parts.",
            (Operand("real", ("f32", "f64")), Operand("imag", ("f32", "f64"))),
            make_complex,
            "the shape to which the operands broadcast; f32 gives c64, f64 gives c128",
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
                Attribute("direction", "string", "The question.", choices=DIRECTIONS),
                Attribute(
                    "total_order",
                    "bool",
                    "Floats in the total order of IEEE 754: -NaN < -0 < 0 < NaN.",
                    False,
                ),
            ),
        ),
        Op(
            "select",
            "on_true where the condition holds, on_false elsewhere.",
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
    "Operands broadcast as in NumPy, and must have one dtype: nothing is converted unasked.",
)

DTYPES = Group(
    "Dtypes",
    (
        Op(
            "convert",
            "The same number in another dtype, or the nearest.",
            (Operand("x", ANY),),
            convert,
            "the shape of `x` in `dtype`: i1 says whether it is not 0, floats are truncated to integers, of "
            "complex the real part stays",
            "`stablehlo.convert`; nothing where `x` has that dtype",
            (Attribute("dtype", "dtype", "The dtype of the result."),),
        ),
        Op(
            "bitcast",
            "The same bits, read as another dtype.",
            (Operand("x", NUMBERS),),
            bitcast,
            "the shape of `x` in `dtype`; a narrower dtype adds a last axis with the parts of an element, "
            "lowest first, and a wider one takes that axis away",
            "`stablehlo.bitcast_convert`",
            (Attribute("dtype", "dtype", "The dtype of the result; complex only for complex."),),
        ),
        Op(
            "reduce_precision",
            "x rounded to a float of fewer bits, in its own dtype.",
            (Operand("x", FLOATS),),
            reduce_precision,
            _SAME,
            "`stablehlo.reduce_precision`",
            (
                Attribute("exponent_bits", "int", "From 1."),
                Attribute("mantissa_bits", "int", "From 0, without the leading one."),
            ),
        ),
    ),
)
