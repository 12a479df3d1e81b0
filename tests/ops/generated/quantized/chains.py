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
        made = draft.pick([_binary, _unary, _requantized, _turned, _called])(
            draft, draft.pick(values), values
        )
        if made is not None:
            values.append(made)
    for value in values[-2:]:
        draft.give(value.name, value.element, value.integers)


def _binary(draft: Draft, given: Value, values: list[Value]) -> Value | None:
    """With another of the same bounds and shape, or with itself."""
    bounds = given.element.low, given.element.high
    alike = [v for v in values if v.shape == given.shape and (v.element.low, v.element.high) == bounds]
    other, op, wanted = draft.pick(alike), draft.pick(list(_BINARY)), draft.like(given.element)
    types = f"({given.type}, {other.type}) -> {wanted.tensor(given.shape)}"
    name = draft.line(f'"stablehlo.{op}"({given.name}, {other.name}) : {types}')
    with np.errstate(all="ignore"):
        floats = rounded(draft.expressed, _BINARY[op](given.real, other.real))
    if np.isnan(floats).any():
        return None
    return Value(name, wanted, wanted.quantized(floats)[0])


def _unary(draft: Draft, given: Value, values: list[Value]) -> Value:
    op, wanted = draft.pick(list(_UNARY)), draft.like(given.element)
    name = draft.line(f'"stablehlo.{op}"({given.name}) : ({given.type}) -> {wanted.tensor(given.shape)}')
    return Value(name, wanted, wanted.quantized(rounded(draft.expressed, _UNARY[op](given.real)))[0])


def _requantized(draft: Draft, given: Value, values: list[Value]) -> Value:
    wanted = draft.element()
    type = wanted.tensor(given.shape)
    name = draft.line(f"stablehlo.uniform_quantize {given.name} : ({given.type}) -> {type}")
    return Value(name, wanted, wanted.quantized(given.real)[0])


def _turned(draft: Draft, given: Value, values: list[Value]) -> Value:
    found = given.integers.T
    name = draft.line(
        f'"stablehlo.transpose"({given.name}) <{{permutation = {array([1, 0])}}}> : '
        f"({given.type}) -> {given.element.tensor(found.shape)}"
    )
    return Value(name, given.element, found)


def _called(draft: Draft, given: Value, values: list[Value]) -> Value:
    """By a branch that is taken."""
    condition = draft.line("stablehlo.constant dense<true> : tensor<i1>")
    types = f"({given.type}) -> {given.type}"
    other = draft.line(f'"stablehlo.reverse"({given.name}) <{{dimensions = {array([0])}}}> : {types}')
    name = draft.line(
        f'"stablehlo.if"({condition}) ({{ %t = stablehlo.maximum {given.name}, {given.name} : {given.type} '
        f'"stablehlo.return"(%t) : ({given.type}) -> () }}, '
        f'{{ "stablehlo.return"({other}) : ({given.type}) -> () }}) : '
        f"(tensor<i1>) -> {given.type}"
    )
    return Value(name, given.element, given.element.quantized(given.real)[0])
