"""Operations element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy.special

from tests.ops.generated.draft import EPSILON, Draft, Family, Shape, Value
from tests.ops.harness.compare import BITS
from tests.ops.harness.programs import OpProgram, total_order
from tests.ops.harness.values import ALL, COMPLEX, DTYPES, FLOATS, INTEGERS, NUMBERS, SIGNED, decode, encode

_BITS = ("i1", *INTEGERS)
_Long = npt.NDArray[np.clongdouble]
_REAL = FLOATS + COMPLEX
_PARTS = {"c64": "f32", "c128": "f64"}
_EXACT: dict[str, tuple[int, tuple[str, ...]]] = {
    "add": (2, ALL),
    "and": (2, _BITS),
    "ceil": (1, FLOATS),
    "count_leading_zeros": (1, INTEGERS),
    "divide": (2, (*INTEGERS, *_REAL)),
    "floor": (1, FLOATS),
    "maximum": (2, ALL),
    "minimum": (2, ALL),
    "multiply": (2, ALL),
    "negate": (1, NUMBERS),
    "not": (1, _BITS),
    "or": (2, _BITS),
    "popcnt": (1, INTEGERS),
    "remainder": (2, (*INTEGERS, *FLOATS)),
    "round_nearest_afz": (1, FLOATS),
    "round_nearest_even": (1, FLOATS),
    "shift_left": (2, INTEGERS),
    "shift_right_arithmetic": (2, INTEGERS),
    "shift_right_logical": (2, INTEGERS),
    "sign": (1, SIGNED + _REAL),
    "subtract": (2, NUMBERS),
    "xor": (2, _BITS),
    "clamp": (3, ALL),
}
_INEXACT: dict[str, tuple[int, tuple[str, ...]]] = {
    "atan2": (2, _REAL),
    "cbrt": (1, FLOATS),
    "cosine": (1, _REAL),
    "exponential": (1, _REAL),
    "exponential_minus_one": (1, _REAL),
    "log": (1, _REAL),
    "log_plus_one": (1, _REAL),
    "logistic": (1, _REAL),
    "power": (2, (*INTEGERS, *_REAL)),
    "rsqrt": (1, _REAL),
    "sine": (1, _REAL),
    "sqrt": (1, _REAL),
    "tan": (1, _REAL),
    "tanh": (1, _REAL),
}
_CHLO: dict[str, tuple[int, str]] = {
    "acos": (1, "unit"),
    "acosh": (1, "large"),
    "asin": (1, "unit"),
    "asinh": (1, "tame"),
    "atan": (1, "tame"),
    "atanh": (1, "unit"),
    "bessel_i1e": (1, "tame"),
    "cosh": (1, "tame"),
    "digamma": (1, "unit"),
    "erf": (1, "tame"),
    "erf_inv": (1, "unit"),
    "erfc": (1, "tame"),
    "lgamma": (1, "unit"),
    "polygamma": (2, "unit"),
    "sinh": (1, "tame"),
    "tan": (1, "unit"),
    "zeta": (2, "unit"),
}
_CHLO_COMPLEX = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan")


#: Of complex numbers: neither infinite nor NaN.
_ORDERED = ("maximum", "minimum", "clamp")
_TAME = ("multiply", "divide", "sign", "maximum", "minimum", "clamp")


#: Where the interpreter takes other sides of branch cuts than the C library, or is exact near 0 or ours is.
_BRANCHES = ("atan2",)


def _power(z: _Long, w: _Long) -> _Long:
    """Of 0 too: 1 where w is 0, else 0, infinite or NaN as w's real part says."""
    edge = np.where(w.real > 0, 0, np.where(w.real < 0, complex(np.inf, np.nan), complex(np.nan, np.nan)))
    return np.where(w == 0, 1, np.where(z == 0, edge, np.exp(w * np.log(z))))


#: Of complex numbers, in long double: the interpreter takes -0 for 0 in some, and loses what is small.
_BY_NUMPY: dict[str, Callable[..., _Long]] = {
    "chlo.acos": np.arccos,
    "chlo.acosh": np.arccosh,
    "chlo.asin": np.arcsin,
    "chlo.asinh": np.arcsinh,
    "chlo.atan": np.arctan,
    "chlo.atanh": np.arctanh,
    "chlo.cosh": np.cosh,
    "chlo.sinh": np.sinh,
    "chlo.tan": np.tan,
    "log_plus_one": np.log1p,
    "power": _power,
}


def _by_numpy(draft: Draft) -> list[bytes] | None:
    """What NumPy says of complex arguments; None where the interpreter is asked."""
    whole = {"c64": np.complex64, "c128": np.complex128}.get(draft.dtype)
    function = _BY_NUMPY.get(draft.op)
    if whole is None or function is None:
        return None
    with np.errstate(all="ignore"):
        numbers = [np.frombuffer(content, whole).astype(np.clongdouble) for content in draft.inputs]
        return [function(*numbers).astype(whole).tobytes()]


def families() -> dict[str, Family]:
    """Every operation of this file."""
    table = {op: Family(dtypes, _exact(arity)) for op, (arity, dtypes) in _EXACT.items()}
    table |= {op: Family(dtypes, _inexact(arity)) for op, (arity, dtypes) in _INEXACT.items()}
    for op, (arity, kind) in _CHLO.items():
        dtypes = FLOATS + (COMPLEX if op in _CHLO_COMPLEX else ())
        table[f"chlo.{op}"] = Family(dtypes, _special(arity, kind))
    table |= {f"chlo.{op}": Family(FLOATS, _test) for op in ("is_inf", "is_neg_inf", "is_pos_inf")}
    return table | {
        "chlo._asin_acos_kernel": Family(COMPLEX, _special(1, "unit")),
        "abs": Family(SIGNED + _REAL, _magnitude),
        "bitcast_convert": Family(NUMBERS, _bitcast),
        "chlo.conj": Family(COMPLEX, _chlo_exact(1)),
        "chlo.mulhi": Family(INTEGERS, _chlo_exact(2)),
        "chlo.next_after": Family(FLOATS, _chlo_exact(2)),
        "chlo.square": Family(_REAL, _chlo_exact(1)),
        "compare": Family(ALL, _compare),
        "complex": Family(("f32", "f64"), _complex),
        "convert": Family(ALL, _convert),
        "imag": Family(("f32", "f64", *COMPLEX), _part),
        "is_finite": Family(FLOATS, _test),
        "real": Family(("f32", "f64", *COMPLEX), _part),
        "reduce_precision": Family(FLOATS, _precision),
        "select": Family(ALL, _select),
    }


def _looseness(draft: Draft, ulps: float) -> tuple[float, float]:
    """Complex numbers are measured by their length, where terms may cancel."""
    return (64.0, 64 * EPSILON[draft.dtype]) if draft.dtype in COMPLEX else (ulps, 0.0)


def _exact(arity: int) -> Callable[[Draft], OpProgram]:
    def make(draft: Draft) -> OpProgram:
        shape = draft.shape()
        tame = draft.dtype in COMPLEX and draft.op in _TAME
        kind = ("finite" if draft.edge and draft.op != "divide" else "tame") if tame else "any"
        scalars = draft.op == "clamp" and draft.chance(0.5)
        shapes = [() if scalars and number != 1 and draft.chance(0.7) else shape for number in range(arity)]
        # What complex numbers by zero are is left open: dividends only have edges.
        edges = "finite" if draft.op == "divide" and draft.dtype in COMPLEX else kind
        edges = "special" if draft.op in _ORDERED and tame else edges
        operands = [
            draft.argument(dims, kind, may=edges if not place or draft.op in _ORDERED else kind)
            for place, dims in enumerate(shapes)
        ]
        rounded = draft.op in ("multiply", "divide", "sign")
        loose = _looseness(draft, 0.0) if tame and rounded else (0.0, 0.0)
        expected = None
        if draft.op in ("divide", "remainder") and draft.dtype in INTEGERS:
            expected = [_quotients(draft.op, draft.dtype, *draft.inputs)]
        return draft.program(draft.call(operands, [(draft.dtype, shape)]), *loose, expected)

    return make


def _quotients(op: str, dtype: str, left: bytes, right: bytes) -> bytes:
    """As XLA has them, where the interpreter ends its process: n / 0 is -1, the rest n; the least number by
    -1 is itself, the rest 0.
    """
    storage = np.dtype(DTYPES[dtype][1])
    modulus, signed = 256**storage.itemsize, dtype in SIGNED
    quotients: list[int] = []
    pairs = zip(np.frombuffer(left, storage).tolist(), np.frombuffer(right, storage).tolist(), strict=True)
    for a, b in pairs:
        quotient = -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        value = (quotient if op == "divide" else a - quotient * b if b else a) % modulus
        quotients.append(value - modulus if signed and value >= modulus // 2 else value)
    return np.array(quotients, storage).tobytes()


def _logistic(dtype: str, content: bytes) -> bytes:
    """The interpreter loses what is small: its exponential overflows."""
    x = decode(dtype, np.frombuffer(content, DTYPES[dtype][1])).astype(np.longdouble)
    with np.errstate(over="ignore"):
        return encode(dtype, (1 / (1 + np.exp(-x))).astype(np.float64)).tobytes()


def _inexact(arity: int) -> Callable[[Draft], OpProgram]:
    def make(draft: Draft) -> OpProgram:
        shape = draft.shape()
        kind = "small" if draft.dtype in INTEGERS else "tame" if draft.dtype in COMPLEX else "any"
        if draft.edge and (draft.dtype in INTEGERS or draft.op not in _BRANCHES):
            kind = "finite" if draft.dtype in COMPLEX else "any"
        operands = [draft.argument(shape, kind) for _ in range(arity)]
        results = draft.call(operands, [(draft.dtype, shape)])
        if draft.dtype in INTEGERS:
            return draft.program(results)
        if draft.op == "logistic" and draft.dtype in FLOATS:
            return draft.program(results, 3.0, expected=[_logistic(draft.dtype, draft.inputs[0])])
        loose = _looseness(draft, 4.0 if draft.op == "power" else 3.0)
        return draft.program(results, *loose, _by_numpy(draft))

    return make


def _special(arity: int, kind: str) -> Callable[[Draft], OpProgram]:
    """CHLO; the interpreter's expansions are less exact than ours: accuracy is tested elsewhere."""
    loose = {"f16": 8e-3, "bf16": 0.12, "f32": 4e-5, "f64": 1e-9, "c64": 2e-4, "c128": 1e-9}

    def make(draft: Draft) -> OpProgram:
        shape = draft.shape()
        kinds = ["small" if arity == 2 and number == 0 else kind for number in range(arity)]
        if draft.edge and arity == 1:
            kinds = ["finite" if draft.dtype in COMPLEX else "any"]
        if arity == 2 and draft.wish.startswith("values "):
            return _of_two(draft, shape)
        operands = [draft.argument(shape, "small" if each == "large" else each) for each in kinds]
        results = draft.call(operands, [(draft.dtype, shape)])
        if draft.op == "chlo.lgamma":
            return draft.program(results, 96.0, loose[draft.dtype], [_lgamma(draft.dtype, draft.inputs[0])])
        return draft.program(results, 96.0, loose[draft.dtype], _by_numpy(draft))

    return make


def _lgamma(dtype: str, content: bytes) -> bytes:
    """By SciPy, and by the logarithm near 0, where both that and the interpreter are off."""
    x = decode(dtype, np.frombuffer(content, DTYPES[dtype][1]))
    near = np.where(np.abs(x) < 1e-200, -np.log(np.abs(x)), scipy.special.gammaln(x))
    return encode(dtype, np.where(np.isneginf(x), np.inf, near)).tobytes()


def _of_two(draft: Draft, shape: Shape) -> OpProgram:
    """``zeta`` and ``polygamma`` at edges, of orders at which all are defined; the interpreter has NaN at
    infinity.
    """
    orders, edges, expected = of_orders(draft, shape, shape)
    results = draft.call([orders, edges], [(draft.dtype, shape)])
    return draft.program(results, 96.0, 4e-5 if draft.dtype != "f64" else 1e-9, [expected])


def of_orders(draft: Draft, first: Shape, second: Shape) -> tuple[Value, Value, bytes]:
    """Orders and values of ``zeta`` or ``polygamma``, and the results by SciPy, in f64."""
    zeta = draft.op.endswith("zeta")
    drawn = draft.rng.choice(np.array([2.0, 4.0] if zeta else [1.0, 3.0]), first)
    orders = draft.given(first, encode(draft.dtype, np.asarray(drawn)).tobytes(), draft.dtype)
    values = draft.argument(second, "unit", may="any")
    numbers = decode(draft.dtype, np.frombuffer(draft.inputs[-1], DTYPES[draft.dtype][1])).reshape(second)
    computed = scipy.special.zeta(drawn, numbers) if zeta else scipy.special.polygamma(drawn, numbers)
    return orders, values, encode(draft.dtype, np.ascontiguousarray(computed, np.float64)).tobytes()


def _chlo_exact(arity: int) -> Callable[[Draft], OpProgram]:
    def make(draft: Draft) -> OpProgram:
        shape = draft.shape()
        kind = ("finite" if draft.edge else "tame") if draft.dtype in COMPLEX else "any"
        kind = "any" if draft.edge and draft.op == "chlo.conj" else kind
        operands = [draft.argument(shape, kind) for _ in range(arity)]
        loose = _looseness(draft, 0.0) if kind == "tame" else (0.0, 0.0)
        return draft.program(draft.call(operands, [(draft.dtype, shape)]), *loose)

    return make


def _test(draft: Draft) -> OpProgram:
    shape = draft.shape()
    return draft.program(draft.call([draft.argument(shape)], [("i1", shape)]))


def _magnitude(draft: Draft) -> OpProgram:
    shape, pair = draft.shape(), draft.dtype in COMPLEX
    value = draft.argument(shape, "tame" if pair and not draft.edge else "any")
    return draft.program(
        draft.call([value], [(_PARTS.get(draft.dtype, draft.dtype), shape)]), 3.0 if pair else 0.0
    )


def _part(draft: Draft) -> OpProgram:
    shape = draft.shape()
    value = draft.argument(shape, "bits")
    results = draft.call([value], [(_PARTS.get(draft.dtype, draft.dtype), shape)])
    return draft.program(results, BITS if draft.dtype in COMPLEX or draft.op == "real" else 0.0)


def _complex(draft: Draft) -> OpProgram:
    shape = draft.shape()
    whole = {"f32": "c64", "f64": "c128"}[draft.dtype]
    parts = [draft.argument(shape, "bits") for _ in range(2)]
    return draft.program(draft.call(parts, [(whole, shape)]), BITS)


_WIDTHS = {dtype: int(dtype.lstrip("uibfc")) for dtype in (*INTEGERS, *FLOATS)} | {"c64": 64, "c128": 128}


def _bitcast(draft: Draft) -> OpProgram:
    """To any dtype; another width moves elements into an axis, or out of it."""
    among = COMPLEX if draft.dtype in COMPLEX else (*INTEGERS, *FLOATS)
    target = draft.pick(among)
    ratio = _WIDTHS[draft.dtype] / _WIDTHS[target]
    shape = draft.shape(0, 3)
    operand_shape, result = shape, shape
    if ratio > 1:
        result = (*shape, int(ratio))
    if ratio < 1:
        operand_shape = (*shape, int(1 / ratio))
    value = draft.argument(operand_shape, "bits")
    results = draft.call([value], [(target, result)])
    return draft.program(results, BITS, expected=[*draft.inputs])


def _compare(draft: Draft) -> OpProgram:
    shape = draft.shape()
    directions = ("EQ", "NE") if draft.dtype in COMPLEX else ("EQ", "NE", "LT", "LE", "GT", "GE")
    wished = draft.wished("compare_type")
    often = float(wished == "TOTALORDER") if wished else 0.3
    if draft.dtype in FLOATS and draft.chance(often):
        return _compare_total(draft, draft.pick(directions, "comparison_direction"))
    kind = "bits" if draft.wish == "values NaN with content" else "any"
    operands = [draft.argument(shape, kind), draft.argument(shape, kind)]
    kind = "FLOAT" if draft.dtype in _REAL else "SIGNED" if draft.dtype in SIGNED else "UNSIGNED"
    attributes = _order(draft.pick(directions, "comparison_direction"), kind)
    if draft.chance(0.2) and not wished:
        attributes = attributes.partition(", compare_type")[0]
    return draft.program(draft.call(operands, [("i1", shape)], attributes))


def _compare_total(draft: Draft, direction: str) -> OpProgram:
    """The total order; the interpreter puts NaN of f64 below negative numbers."""
    shape = draft.shape()
    operands = [draft.argument(shape, "bits"), draft.argument(shape, "bits")]
    same = np.frombuffer(draft.inputs[0], np.uint8) == np.frombuffer(draft.inputs[1], np.uint8)
    equal = same.reshape(math.prod(shape), -1).all(1) if math.prod(shape) else np.zeros(0, bool)
    less = np.frombuffer(total_order(draft.dtype, *draft.inputs), np.uint8) != 0
    answers = {"EQ": equal, "NE": ~equal, "LT": less, "LE": less | equal, "GT": ~(less | equal), "GE": ~less}
    results = draft.call(operands, [("i1", shape)], _order(direction, "TOTALORDER"))
    return draft.program(results, expected=[answers[direction].astype(np.uint8).tobytes()])


def _order(direction: str, kind: str) -> str:
    return (
        f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
        f"compare_type = #stablehlo<comparison_type {kind}>"
    )


def _convert(draft: Draft) -> OpProgram:
    shape = draft.shape()
    return draft.program(draft.call([draft.argument(shape)], [(draft.pick(ALL, "to"), shape)]))


def _precision(draft: Draft) -> OpProgram:
    shape = draft.shape()
    exponent, mantissa = draft.number(1, 11), draft.number(0, 52)
    if draft.edge:
        exponent, mantissa = draft.pick((1, 1, exponent)), draft.pick((0, 1, mantissa))
    if draft.wish:
        exponent, mantissa = draft.number(1, 11, "exponent_bits"), draft.number(0, 52, "mantissa_bits")
    attributes = f"exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32"
    # A format without a mantissa has no NaN: XLA, and we, keep it, the interpreter has infinity.
    value = draft.argument(shape, "any" if mantissa else "finite")
    return draft.program(draft.call([value], [(draft.dtype, shape)], attributes))


def _select(draft: Draft) -> OpProgram:
    shape = draft.shape()
    where = draft.argument(() if draft.chance(0.3) else shape, dtype="i1")
    operands = [where, draft.argument(shape, "bits"), draft.argument(shape, "bits")]
    return draft.program(draft.call(operands, [(draft.dtype, shape)]), BITS)
