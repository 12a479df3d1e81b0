"""Several operations one after another, each exact: values are used again, by others and by functions."""

from __future__ import annotations

import numpy as np

from tests.ops.generated.quantized.computed import Maker
from tests.ops.generated.quantized.draft import Draft, Value
from tests.ops.generated.quantized.element import rounded
from tests.ops.generated.quantized.moved import array

_BINARY = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum, "multiply": np.multiply}
_UNARY = {"abs": np.abs, "ceil": np.ceil, "negate": np.negative}


def families() -> dict[str, Maker]:
    """Maker of each operation."""
    return {"chain": _chain}


def _chain(draft: Draft) -> None:
    rows, columns = draft.number(1, 4), draft.number(1, 4)
    values = [draft.value(draft.element(), (rows, columns))]
    for _ in range(draft.number(3, 8)):
        result = draft.pick([_binary, _unary, _requantized, _turned, _called])(
            draft, draft.pick(values), values
        )
        if result is not None:
            values.append(result)
    for value in values[-2:]:
        draft.give(value.name, value.element, value.integers)


def _binary(draft: Draft, value: Value, values: list[Value]) -> Value | None:
    """With another of the same bounds and shape, or with itself."""
    bounds = value.element.low, value.element.high
    alike = [v for v in values if v.shape == value.shape and (v.element.low, v.element.high) == bounds]
    other, op, wanted = draft.pick(alike), draft.pick(list(_BINARY)), draft.like(value.element)
    types = f"({value.type}, {other.type}) -> {wanted.tensor(value.shape)}"
    name = draft.line(f'"stablehlo.{op}"({value.name}, {other.name}) : {types}')
    with np.errstate(all="ignore"):
        floats = rounded(draft.expressed, _BINARY[op](value.real, other.real))
    if np.isnan(floats).any():
        return None
    return Value(name, wanted, wanted.quantized(floats)[0])


def _unary(draft: Draft, value: Value, values: list[Value]) -> Value:
    op, wanted = draft.pick(list(_UNARY)), draft.like(value.element)
    name = draft.line(f'"stablehlo.{op}"({value.name}) : ({value.type}) -> {wanted.tensor(value.shape)}')
    return Value(name, wanted, wanted.quantized(rounded(draft.expressed, _UNARY[op](value.real)))[0])


def _requantized(draft: Draft, value: Value, values: list[Value]) -> Value:
    wanted = draft.element()
    type = wanted.tensor(value.shape)
    name = draft.line(f"stablehlo.uniform_quantize {value.name} : ({value.type}) -> {type}")
    return Value(name, wanted, wanted.quantized(value.real)[0])


def _turned(draft: Draft, value: Value, values: list[Value]) -> Value:
    transposed = value.integers.T
    name = draft.line(
        f'"stablehlo.transpose"({value.name}) <{{permutation = {array([1, 0])}}}> : '
        f"({value.type}) -> {value.element.tensor(transposed.shape)}"
    )
    return Value(name, value.element, transposed)


def _called(draft: Draft, value: Value, values: list[Value]) -> Value:
    """By a branch that is taken."""
    condition = draft.line("stablehlo.constant dense<true> : tensor<i1>")
    types = f"({value.type}) -> {value.type}"
    other = draft.line(f'"stablehlo.reverse"({value.name}) <{{dimensions = {array([0])}}}> : {types}')
    name = draft.line(
        f'"stablehlo.if"({condition}) ({{ %t = stablehlo.maximum {value.name}, {value.name} : {value.type} '
        f'"stablehlo.return"(%t) : ({value.type}) -> () }}, '
        f'{{ "stablehlo.return"({other}) : ({value.type}) -> () }}) : '
        f"(tensor<i1>) -> {value.type}"
    )
    return Value(name, value.element, value.element.quantized(value.real)[0])
