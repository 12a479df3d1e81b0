"""Operations with functions of their own: reductions, scatters, sorts, control flow."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.ops.generated.quantized.computed import Maker
from tests.ops.generated.quantized.draft import Draft
from tests.ops.generated.quantized.element import Element, Ints, rounded
from tests.ops.generated.quantized.moved import array

#: What combines elements in any order, where sums stay away from the bounds.
_COMBINERS = ("add", "maximum", "minimum")


def families() -> dict[str, Maker]:
    """Maker of each operation."""
    return {
        "case": _case,
        "func.call": _function,
        "if": _if,
        "map": _map,
        "reduce": _reduce,
        "reduce_window": _reduce_window,
        "scatter": _scatter,
        "select_and_scatter": _select_and_scatter,
        "sort": _sort,
        "while": _while,
    }


def _combiner(element: Element, op: str) -> str:
    scalar = element.tensor(())
    return (
        f"{{\n^bb0(%p: {scalar}, %q: {scalar}):\n  %s = stablehlo.{op} %p, %q : {scalar}\n"
        f'  "stablehlo.return"(%s) : ({scalar}) -> ()\n}}'
    )


def _combine(element: Element, op: str) -> Callable[[Ints, Ints], Ints]:
    """What the operation gives for integers."""
    function = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}[op]

    def combined(left: Ints, right: Ints) -> Ints:
        with np.errstate(all="ignore"):
            floats = function(element.dequantized(left), element.dequantized(right))
        return element.quantized(rounded(element.expressed, floats))[0]

    return combined


def _element(draft: Draft) -> Element:
    """One whose numbers may be added some times without reaching a bound."""
    element = draft.element()
    middle = (element.low + element.high) // 2
    return Element(element.storage, element.low, element.high, element.expressed, element.scales, (middle,))


def _near(draft: Draft) -> int:
    """How far from the zero point numbers may be that are added."""
    return {2: 0, 4: 1, 8: 6}.get(int(draft.storage[1:]), 30)


def _chosen(draft: Draft) -> str:
    """Sums of floats that have few digits depend on their order."""
    exact = draft.expressed != "bf16" and (int(draft.storage[1:]) < 32 or draft.expressed == "f64")
    return draft.pick(_COMBINERS if exact else _COMBINERS[1:])


def _reduce(draft: Draft) -> None:
    shape, element, op = draft.shape(1, limit=16), _element(draft), _chosen(draft)
    operand, start = draft.value(element, shape, _near(draft)), draft.value(element, (), _near(draft))
    axes = [axis for axis in range(len(shape)) if draft.chance(0.6)]
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    reduced = np.full([shape[axis] for axis in kept], start.integers)
    count = math.prod(shape[axis] for axis in axes)
    rows = np.transpose(operand.integers, [*axes, *kept]).reshape(count, *reduced.shape)
    for row in rows:
        reduced = _combine(element, op)(reduced, row)
    name = draft.line(
        f'"stablehlo.reduce"({operand.name}, {start.name}) <{{dimensions = {array(axes)}}}> '
        f"({_combiner(element, op)}) : ({operand.type}, {start.type}) -> {element.tensor(reduced.shape)}"
    )
    draft.give(name, element, reduced)


def _reduce_window(draft: Draft) -> None:
    length, size, stride = draft.number(1, 9), draft.number(1, 3), draft.number(1, 2)
    low, high = draft.number(0, 2), draft.number(0, 2)
    if length + low + high < size:
        high += size
    element, op = _element(draft), _chosen(draft)
    operand, start = draft.value(element, (length,), _near(draft)), draft.value(element, (), _near(draft))
    padded = np.pad(operand.integers, (low, high), constant_values=start.integers)
    count = (length + low + high - size) // stride + 1
    reduced = np.full((count,), start.integers)
    for place in range(size):
        reduced = _combine(element, op)(reduced, padded[place : place + stride * (count - 1) + 1 : stride])
    attributes = (
        f"window_dimensions = {array([size])}, window_strides = {array([stride])}, "
        f"padding = dense<[[{low}, {high}]]> : tensor<1x2xi64>"
    )
    name = draft.line(
        f'"stablehlo.reduce_window"({operand.name}, {start.name}) <{{{attributes}}}> '
        f"({_combiner(element, op)}) : "
        f"({operand.type}, {start.type}) -> {element.tensor((count,))}"
    )
    draft.give(name, element, reduced)


def _scatter(draft: Draft) -> None:
    rows, columns, count = draft.number(1, 6), draft.number(0, 4), draft.number(0, 4)
    element, op = _element(draft), _chosen(draft)
    value = draft.value(element, (rows, columns), _near(draft))
    updates = draft.value(element, (count, columns), _near(draft))
    places = draft.rng.integers(-1, rows + 1, count)
    indices = draft.argument(f"tensor<{count}x1xi32>", places.astype("<i4").tobytes())
    updated = value.integers.copy()
    for place, update in zip(places, updates.integers, strict=True):
        if 0 <= place < rows:
            updated[place] = _combine(element, op)(updated[place], update)
    attributes = (
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], "
        "inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, "
        "unique_indices = false"
    )
    name = draft.line(
        f'"stablehlo.scatter"({value.name}, {indices}, {updates.name}) <{{{attributes}}}> '
        f"({_combiner(element, op)}) : ({value.type}, tensor<{count}x1xi32>, {updates.type}) -> {value.type}"
    )
    draft.give(name, element, updated)


def _select_and_scatter(draft: Draft) -> None:
    """The greatest of each pair takes what is scattered."""
    count, element = draft.number(1, 5), _element(draft)
    operand = draft.value(element, (2 * count,), _near(draft))
    source, start = draft.value(element, (count,), _near(draft)), draft.value(element, (), _near(draft))
    updated = np.full((2 * count,), start.integers)
    for pair in range(count):
        place = 2 * pair + int(np.argmax(operand.integers[2 * pair : 2 * pair + 2]))
        updated[place] = _combine(element, "add")(updated[place], source.integers[pair])
    scalar = element.tensor(())
    select = (
        f"{{\n^bb0(%p: {scalar}, %q: {scalar}):\n"
        f"  %s = stablehlo.compare GE, %p, %q : ({scalar}, {scalar}) -> tensor<i1>\n"
        '  "stablehlo.return"(%s) : (tensor<i1>) -> ()\n}'
    )
    name = draft.line(
        f'"stablehlo.select_and_scatter"({operand.name}, {source.name}, {start.name}) '
        "<{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}> "
        f"({select}, {_combiner(element, 'add')}) : "
        f"({operand.type}, {source.type}, {start.type}) -> {operand.type}"
    )
    draft.give(name, element, updated)


def _sort(draft: Draft) -> None:
    shape = draft.shape(1)
    axis, element = draft.number(0, len(shape) - 1), draft.element()
    operand, scalar = draft.value(element, shape), element.tensor(())
    comparator = (
        f"{{\n^bb0(%p: {scalar}, %q: {scalar}):\n"
        f"  %s = stablehlo.compare LT, %p, %q : ({scalar}, {scalar}) -> tensor<i1>\n"
        '  "stablehlo.return"(%s) : (tensor<i1>) -> ()\n}'
    )
    name = draft.line(
        f'"stablehlo.sort"({operand.name}) <{{dimension = {axis} : i64, is_stable = true}}> ({comparator}) : '
        f"({operand.type}) -> {operand.type}"
    )
    order = np.argsort(operand.real, axis, kind="stable")
    draft.give(name, element, np.take_along_axis(operand.integers, order, axis))


def _map(draft: Draft) -> None:
    shape = draft.shape()
    left = draft.value(draft.element(), shape)
    right = draft.value(left.element, shape)
    op = draft.pick(["add", "multiply", "maximum"])
    dimensions = array(range(len(shape)))
    name = draft.line(
        f'"stablehlo.map"({left.name}, {right.name}) <{{dimensions = {dimensions}}}> '
        f"({_combiner(left.element, op)}) : ({left.type}, {right.type}) -> {left.type}"
    )
    draft.give(name, left.element, _combine(left.element, op)(left.integers, right.integers))


def _chosen_branch(draft: Draft, op: str, condition: str, type: str, branches: int, taken: int) -> None:
    shape = draft.shape()
    values = [draft.value(draft.element(), shape)]
    values += [draft.value(values[0].element, shape) for _ in range(branches - 1)]
    regions = ", ".join(f'{{\n  "stablehlo.return"({v.name}) : ({v.type}) -> ()\n}}' for v in values)
    name = draft.line(f'"stablehlo.{op}"({condition}) ({regions}) : ({type}) -> {values[0].type}')
    draft.give(name, values[0].element, values[taken].integers)


def _if(draft: Draft) -> None:
    taken = draft.number(0, 1)
    condition = draft.argument("tensor<i1>", np.array(taken, "u1").tobytes())
    _chosen_branch(draft, "if", condition, "tensor<i1>", 2, 1 - taken)


def _case(draft: Draft) -> None:
    branches = draft.number(1, 3)
    index = draft.number(-1, branches)
    selector = draft.argument("tensor<i32>", np.array(index, "<i4").tobytes())
    taken = index if 0 <= index < branches else branches - 1
    _chosen_branch(draft, "case", selector, "tensor<i32>", branches, taken)


def _while(draft: Draft) -> None:
    """Adds a number to all some times."""
    shape, element = draft.shape(), _element(draft)
    value, more = draft.value(element, shape, _near(draft)), draft.value(element, shape, min(_near(draft), 2))
    turns = draft.number(0, 3)
    start = draft.argument("tensor<i32>", np.array(turns, "<i4").tobytes())
    op = _chosen(draft)
    total = value.integers
    for _ in range(turns):
        total = _combine(element, op)(total, more.integers)
    type = value.type
    text = f"""stablehlo.while(%n = {start}, %x = {value.name}) : tensor<i32>, {type}
  cond {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %go = stablehlo.compare GT, %n, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %less = stablehlo.subtract %n, %one : tensor<i32>
    %sum = stablehlo.{op} %x, {more.name} : {type}
    stablehlo.return %less, %sum : tensor<i32>, {type}
  }}"""
    name = f"%v{len(draft.lines)}"
    draft.lines.append(f"{name}:2 = {text}")
    draft.give(f"{name}#1", element, total)


def _function(draft: Draft) -> None:
    shape = draft.shape()
    value = draft.value(draft.element(), shape)
    wanted = draft.like(value.element)
    draft.functions = (
        f"func.func private @inner(%x: {value.type}) -> {wanted.tensor(shape)} {{\n"
        f'  %y = "stablehlo.negate"(%x) : ({value.type}) -> {wanted.tensor(shape)}\n'
        f"  return %y : {wanted.tensor(shape)}\n}}\n"
    )
    name = draft.line(f"func.call @inner({value.name}) : ({value.type}) -> {wanted.tensor(shape)}")
    draft.give(name, wanted, *wanted.quantized(-value.real))
