"""Operations that compute: floats of the operands, the operation on floats, its result quantized."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from tests.ops.generated.quantized.draft import Draft, Shape, Value
from tests.ops.generated.quantized.element import EPSILON, Element, Reals, rounded

Maker = Callable[[Draft], None]
#: Correctly rounded, or exact.
_EXACT_UNARY: dict[str, Callable[[Reals], Reals]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "negate": np.negative,
    "round_nearest_afz": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "round_nearest_even": np.rint,
    "sign": np.sign,
    "sqrt": np.sqrt,
}
_erf = np.vectorize(math.erf, otypes=[np.float64])
#: Within a few units in the last place.
_UNARY: dict[str, Callable[[Reals], Reals]] = {
    "cbrt": np.cbrt,
    "cosine": np.cos,
    "exponential": np.exp,
    "exponential_minus_one": np.expm1,
    "log": np.log,
    "log_plus_one": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sine": np.sin,
    "tan": np.tan,
    "tanh": np.tanh,
}
_EXACT_BINARY: dict[str, Callable[[Reals, Reals], Reals]] = {
    "add": np.add,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "remainder": np.fmod,
    "subtract": np.subtract,
}
_BINARY: dict[str, Callable[[Reals, Reals], Reals]] = {"atan2": np.arctan2, "power": np.power}
_DIRECTIONS: dict[str, Callable[[Reals, Reals], Reals]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def families() -> dict[str, Maker]:
    """Maker of each operation."""
    makers: dict[str, Maker] = {op: partial(_unary, exact=True) for op in _EXACT_UNARY}
    makers |= {op: partial(_unary, exact=False) for op in _UNARY}
    makers |= {op: partial(_binary, exact=True) for op in _EXACT_BINARY}
    makers |= {op: partial(_binary, exact=False) for op in _BINARY}
    return makers | {
        "uniform_quantize": _quantize,
        "uniform_dequantize": _dequantize,
        "compare": _compare,
        "clamp": _clamp,
        "select": _select,
        "is_finite": _is_finite,
        "iota": _iota,
        "reduce_precision": _reduce_precision,
    }


def _of(draft: Draft, function: Callable[..., Reals], *reals: Reals) -> Reals:
    with np.errstate(all="ignore"):
        return rounded(draft.expressed, np.asarray(function(*reals), np.float64))


def _result(draft: Draft, name: str, wanted: Element, floats: Reals, exact: bool) -> None:
    """Inexact: within eight units in the last place."""
    error = (
        0.0 if exact else np.where(np.isfinite(floats), 8 * EPSILON[draft.expressed] * np.abs(floats), 0.0)
    )
    draft.give(name, wanted, *wanted.quantized(floats, error))


def _unary(draft: Draft, exact: bool) -> None:
    shape = draft.shape()
    value = draft.value(draft.element(), shape)
    wanted = draft.like(value.element)
    function = (_EXACT_UNARY if exact else _UNARY)[draft.op]
    name = draft.line(f'"stablehlo.{draft.op}"({value.name}) : ({value.type}) -> {wanted.tensor(shape)}')
    _result(draft, name, wanted, _of(draft, function, value.real), exact)


def _binary(draft: Draft, exact: bool) -> None:
    shape = draft.shape(1 if draft.dtype.endswith("axis") else 0)
    axis = draft.number(0, len(shape) - 1) if draft.op == "add" and shape and draft.chance(0.4) else None
    if axis is not None and not shape[axis]:
        axis = None
    left = draft.value(draft.element(shape, axis), shape)
    right = draft.value(draft.like(left.element), shape)
    wanted = draft.like(left.element)
    function = (_EXACT_BINARY if exact else _BINARY)[draft.op]
    types = f"({left.type}, {right.type}) -> {wanted.tensor(shape)}"
    name = draft.line(f'"stablehlo.{draft.op}"({left.name}, {right.name}) : {types}')
    floats = _of(draft, function, left.real, right.real)
    if not exact:
        # Powers at the edge of the range, and angles at signed zeros, which dequantized numbers do not have.
        floats = np.where(np.isfinite(floats), floats, np.nan)
    _result(draft, name, wanted, floats, exact)


def _axis(draft: Draft, shape: Shape) -> int | None:
    """An axis to quantize along, or none."""
    axes = [axis for axis, size in enumerate(shape) if size]
    return draft.pick(axes) if axes and draft.chance(0.5) else None


def _floats(draft: Draft, element: Element, shape: Shape) -> Reals:
    """Numbers around what the element can stand for, ties between two integers among them."""
    near = element.dequantized(draft.integers(element, shape))
    steps = draft.rng.choice(np.array([0.0, 0.5, -0.5, 0.25, 40.0]), shape)
    scales = np.abs(element.spread(element.scales, shape))
    floats = np.where(np.isfinite(near), near, 0.0) + steps * scales
    special = draft.rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, 6e-8]), shape)
    return rounded(draft.expressed, np.where(draft.rng.random(shape) < 0.1, special, floats))


def _quantize(draft: Draft) -> None:
    shape = draft.shape()
    wanted = draft.element(shape, _axis(draft, shape))
    if draft.chance(0.5):
        other = draft.pick(["i8", "u8", "i16", "i4", draft.storage])
        value = draft.value(draft.element(shape, _axis(draft, shape), other), shape)
        name, type, floats = value.name, value.type, value.real
    else:
        floats = _floats(draft, wanted, shape)
        type = f"tensor<{''.join(f'{size}x' for size in shape)}{draft.expressed}>"
        name = draft.argument(type, _encoded(draft.expressed, floats))
    result = draft.line(f"stablehlo.uniform_quantize {name} : ({type}) -> {wanted.tensor(shape)}")
    draft.give(result, wanted, *wanted.quantized(floats))


def _encoded(expressed: str, floats: Reals) -> bytes:
    from tests.ops.harness.values import encode

    return encode(expressed, floats).tobytes()


def _dequantize(draft: Draft) -> None:
    shape = draft.shape()
    value = draft.value(draft.element(shape, _axis(draft, shape)), shape)
    type = f"tensor<{''.join(f'{size}x' for size in shape)}{draft.expressed}>"
    result = draft.line(f"stablehlo.uniform_dequantize {value.name} : ({value.type}) -> {type}")
    draft.give_as(result, type, draft.expressed, value.real, value.real)


def _compare(draft: Draft) -> None:
    shape = draft.shape()
    left = draft.value(draft.element(), shape)
    right = draft.value(draft.like(left.element), shape)
    direction = draft.pick(list(_DIRECTIONS))
    kind = draft.pick(["", ", compare_type = #stablehlo<comparison_type FLOAT>"])
    attributes = f"comparison_direction = #stablehlo<comparison_direction {direction}>{kind}"
    type = f"tensor<{''.join(f'{size}x' for size in shape)}i1>"
    result = draft.line(
        f'"stablehlo.compare"({left.name}, {right.name}) <{{{attributes}}}> : '
        f"({left.type}, {right.type}) -> {type}"
    )
    outcomes = _DIRECTIONS[direction](left.real, right.real).astype(np.int64)
    draft.give_as(result, type, "i1", outcomes, outcomes)


def _clamp(draft: Draft) -> None:
    shape = draft.shape()
    value = draft.value(draft.element(), shape)
    low, high = (draft.value(draft.like(value.element), draft.pick([(), shape])) for _ in (0, 1))
    if low.shape != high.shape and () not in (low.shape, high.shape):
        high = low
    wanted = draft.like(value.element)
    types = f"({low.type}, {value.type}, {high.type}) -> {wanted.tensor(shape)}"
    result = draft.line(f'"stablehlo.clamp"({low.name}, {value.name}, {high.name}) : {types}')
    floats = _of(draft, lambda a, x, b: np.minimum(np.maximum(x, a), b), low.real, value.real, high.real)
    _result(draft, result, wanted, floats, True)


def _select(draft: Draft) -> None:
    shape = draft.shape()
    left = draft.value(draft.element(), shape)
    right = draft.value(left.element, shape)
    whole = draft.chance(0.5)
    choice = draft.rng.integers(0, 2, shape if whole else ())
    kind = f"tensor<{''.join(f'{size}x' for size in choice.shape)}i1>"
    name = draft.argument(kind, choice.astype("u1").tobytes())
    result = draft.line(
        f'"stablehlo.select"({name}, {left.name}, {right.name}) : '
        f"({kind}, {left.type}, {right.type}) -> {left.type}"
    )
    _result(draft, result, left.element, np.where(choice != 0, left.real, right.real), True)


def _is_finite(draft: Draft) -> None:
    shape = draft.shape()
    value = draft.value(draft.element(), shape)
    type = f"tensor<{''.join(f'{size}x' for size in shape)}i1>"
    result = draft.line(f'"stablehlo.is_finite"({value.name}) : ({value.type}) -> {type}')
    truths = np.isfinite(value.real).astype(np.int64)
    draft.give_as(result, type, "i1", truths, truths)


def _iota(draft: Draft) -> None:
    shape = draft.shape(1)
    axis, wanted = draft.number(0, len(shape) - 1), draft.element()
    result = draft.line(
        f'"stablehlo.iota"() <{{iota_dimension = {axis} : i64}}> : () -> {wanted.tensor(shape)}'
    )
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    floats = np.broadcast_to(np.arange(shape[axis], dtype=np.float64).reshape(sizes), shape)
    _result(draft, result, wanted, floats, True)


def _reduce_precision(draft: Draft) -> None:
    """To the format of bf16, whose rounding is known here."""
    shape = draft.shape()
    value = draft.value(draft.element(), shape)
    attributes = "exponent_bits = 8 : i32, mantissa_bits = 7 : i32"
    result = draft.line(
        f'"stablehlo.reduce_precision"({value.name}) <{{{attributes}}}> : ({value.type}) -> {value.type}'
    )
    _result(draft, result, value.element, rounded("bf16", value.real), True)


__all__ = ["Maker", "Value", "families"]
