"""Changes what a program means, in one random place: another operation, attribute, axis, constant, element
type, order of operands, wiring or result.

A change may by chance mean the same (a rewired operand that is equal): ``tests.recognition.meaning`` tells.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from typing import Any

from tests.recognition import edit
from tests.recognition.edit import ir

#: Changes the operation, or something near it, in place; whether it could.
Change = Callable[[Any, random.Random], bool]

_FLOAT_UNARY = [
    *("abs", "cbrt", "ceil", "cosine", "exponential", "exponential_minus_one", "floor", "log", "logistic"),
    *("negate", "rsqrt", "sign", "sine", "sqrt", "tanh"),
]
_FLOAT_BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "atan2"]
_INTEGER_BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor"]
_LOGIC = ["and", "or", "xor"]
_ORDERED = {
    f"stablehlo.{op}"
    for op in ("subtract", "divide", "power", "atan2", "remainder", "compare", "select", "clamp")
} | {"stablehlo.dot_general", "stablehlo.concatenate", "func.call", "stablehlo.pad"}
_DIRECTIONS = ["EQ", "NE", "LT", "LE", "GT", "GE"]
#: Attributes that promise something to a compiler and compute nothing.
_HINTS = {"indices_are_sorted", "unique_indices", "precision_config", "compare_type"}


def _replace(op: Any, made: Any) -> bool:
    op.results[0].replace_all_uses_with(made)
    return True


def other_operation(op: Any, rng: random.Random) -> bool:
    """Another operation of the same operands and result; in reductions too."""
    if not len(op.results) or not edit.is_tensor(op.results[0]):
        return False
    element = op.results[0].type.element_type
    floats = isinstance(element, ir.FloatType)
    if op.name in edit.UNARY and floats and op.operands[0].type == op.results[0].type:
        names = _FLOAT_UNARY
    elif op.name in edit.BINARY and op.name != "stablehlo.compare":
        names = _FLOAT_BINARY if floats else _LOGIC if element.width == 1 else _INTEGER_BINARY
    else:
        return False
    name = rng.choice([n for n in names if f"stablehlo.{n}" != op.name])
    return _replace(
        op, edit.make(f"stablehlo.{name}", op.operands, op.results[0].type, ir.InsertionPoint(op))
    )


def other_attribute(op: Any, rng: random.Random) -> bool:
    """Another number, direction or flag in an attribute: axes, windows, paddings, strides, comparisons."""
    names = [
        n for n in op.attributes if n not in _HINTS and n != "value" and op.name.startswith("stablehlo.")
    ]
    if not names:
        return False
    name = rng.choice(names)
    text = str(op.attributes[name])
    places = list(
        re.finditer(
            r"(?<![\w#x])-?\d+(?![\dx]|\w)|\b(?:EQ|NE|LT|LE|GT|GE)\b|\b(?:true|false)\b",
            text.partition(" : ")[0],
        )
    )
    if not places:
        return False
    place = rng.choice(places)
    found = place[0]
    if found in _DIRECTIONS:
        new = rng.choice([d for d in _DIRECTIONS if d != found])
    elif found in ("true", "false"):
        new = "true" if found == "false" else "false"
    else:
        new = str(int(found) + rng.choice([-2, -1, 1, 2]))
    changed = text[: place.start()] + new + text[place.end() :]
    if rng.random() < 0.5 and len(places) > 1:
        changed = _exchanged(text, places, rng)
    try:
        op.attributes[name] = ir.Attribute.parse(changed)
    except ir.MLIRError:
        return False
    return changed != text


def _exchanged(text: str, places: list[re.Match[str]], rng: random.Random) -> str:
    first, second = sorted(rng.sample(places, 2), key=re.Match.start)
    middle = text[first.end() : second.start()]
    return text[: first.start()] + second[0] + middle + first[0] + text[second.end() :]


def other_axis(op: Any, rng: random.Random) -> bool:
    """Reduce, broadcast or transpose another axis: where sizes coincide, the type stays."""
    if op.name not in _AXES:
        return False
    name, candidates = _AXES[op.name]
    old = tuple(op.attributes[name])
    operand, result = edit.shape(op.operands[0]), edit.shape(op.results[0])
    found = [new for new in candidates(len(old), operand, result) if new != old]
    if not found:
        return False
    op.attributes[name] = ir.Attribute.parse(edit.ints(rng.choice(found)))
    return True


_Axes = Iterator[tuple[int, ...]]


def _reduced(count: int, operand: list[int], result: list[int]) -> _Axes:
    for axes in combinations(range(len(operand)), count):
        if [size for d, size in enumerate(operand) if d not in axes] == result:
            yield axes


def _placed(count: int, operand: list[int], result: list[int]) -> _Axes:
    for axes in permutations(range(len(result)), count):
        if all(size in (1, result[d]) for size, d in zip(operand, axes, strict=True)):
            yield axes


def _permuted(count: int, operand: list[int], result: list[int]) -> _Axes:
    for axes in permutations(range(count)):
        if [operand[d] for d in axes] == result:
            yield axes


_AXES: dict[str, tuple[str, Callable[[int, list[int], list[int]], _Axes]]] = {
    "stablehlo.reduce": ("dimensions", _reduced),
    "stablehlo.broadcast_in_dim": ("broadcast_dimensions", _placed),
    "stablehlo.transpose": ("permutation", _permuted),
}


def other_part(op: Any, rng: random.Random) -> bool:
    """Take a slice elsewhere."""
    if op.name != "stablehlo.slice":
        return False
    starts, limits = list(op.attributes["start_indices"]), list(op.attributes["limit_indices"])
    sizes = edit.shape(op.operands[0])
    moves = [
        (d, by)
        for d, size in enumerate(sizes)
        for by in range(-starts[d], size - limits[d] + 1)
        if by and starts[d] < limits[d]
    ]
    if not moves:
        return False
    d, by = rng.choice(moves)
    starts[d] += by
    limits[d] += by
    op.attributes["start_indices"] = ir.Attribute.parse(edit.ints(starts))
    op.attributes["limit_indices"] = ir.Attribute.parse(edit.ints(limits))
    return True


def other_constant(op: Any, rng: random.Random) -> bool:
    """Another value: of a constant that is not lifted."""
    if op.name not in ("stablehlo.constant", "arith.constant") or not edit.is_tensor(op.results[0]):
        return False
    attribute, type = op.attributes["value"], op.results[0].type
    if not getattr(attribute, "is_splat", False):
        return False
    value = attribute.get_splat_value()
    if isinstance(type.element_type, ir.FloatType):
        number = value.value
        new = rng.choice(
            [number * 1.5 + 0.25, -number if number else 1.0, number + 1.0, number * 0.5 + 0.125]
        )
        made = ir.FloatAttr.get(type.element_type, new)
    else:
        number = int(str(value).partition(" : ")[0].replace("true", "1").replace("false", "0"))
        made = ir.IntegerAttr.get(
            type.element_type, number ^ 1 if type.element_type.width == 1 else number + rng.choice([-1, 1, 2])
        )
    op.attributes["value"] = ir.DenseElementsAttr.get_splat(type, made)
    return True


def other_element_type(op: Any, rng: random.Random) -> bool:
    """Compute with less precision: an operand goes through a smaller float."""
    places = [i for i, v in enumerate(op.operands) if edit.is_float(v) and v.type.element_type.width == 32]
    if not places or op.name == "func.call":
        return False
    number = rng.choice(places)
    value = op.operands[number]
    small = rng.choice([ir.F16Type.get(), ir.BF16Type.get()])
    point = ir.InsertionPoint(op)
    narrow = edit.make("stablehlo.convert", [value], ir.RankedTensorType.get(value.type.shape, small), point)
    op.operands[number] = edit.make("stablehlo.convert", [narrow], value.type, point)
    return True


def other_argument_type(op: Any, rng: random.Random) -> bool:
    """Take an argument in another float, and convert it first."""
    module = op
    while module.name != "builtin.module":
        module = module.parent.operation
    function = edit.main_of(module)
    block = edit.body(function)
    places = [i for i, a in enumerate(block.arguments) if edit.is_float(a)]
    if not places:
        return False
    argument = block.arguments[rng.choice(places)]
    old = argument.type
    elements = [e for e in (ir.F16Type.get(), ir.F64Type.get()) if e != old.element_type]
    before = edit.uses(argument)
    argument.set_type(ir.RankedTensorType.get(old.shape, rng.choice(elements)))
    edit.redirect(
        before, edit.make("stablehlo.convert", [argument], old, ir.InsertionPoint.at_block_begin(block))
    )
    type = function.attributes["function_type"].value
    changed_type = ir.FunctionType.get([a.type for a in block.arguments], type.results)
    function.attributes["function_type"] = ir.TypeAttr.get(changed_type)
    return True


def swapped_operands(op: Any, rng: random.Random) -> bool:
    """Exchange two operands of one type, where their order matters."""
    if op.name not in _ORDERED:
        return False
    operands = list(op.operands)
    pairs = [
        (i, j)
        for j in range(len(operands))
        for i in range(j)
        if operands[i].type == operands[j].type and operands[i] != operands[j]
    ]
    if not pairs:
        return False
    i, j = rng.choice(pairs)
    op.operands[i], op.operands[j] = operands[j], operands[i]
    return True


def rewired(op: Any, rng: random.Random) -> bool:
    """Read another value of the same type."""
    numbers = list(range(len(op.operands)))
    rng.shuffle(numbers)
    for number in numbers:
        old = op.operands[number]
        others = [v for v in _visible(op) if v.type == old.type and v != old]
        if others:
            op.operands[number] = rng.choice(others)
            return True
    return False


def _visible(op: Any) -> list[Any]:
    """Return the values of the block that stand before an operation."""
    found = list(op.block.arguments)
    for view in op.block.operations:
        if view.operation == op:
            break
        found.extend(view.operation.results)
    return found


def dropped(op: Any, rng: random.Random) -> bool:
    """Let an operand of the same type stand for the result."""
    same = [v for v in op.operands if len(op.results) == 1 and v.type == op.results[0].type]
    if not same or op.name == "stablehlo.optimization_barrier":
        return False
    return _replace(op, rng.choice(same))


def inserted(op: Any, rng: random.Random) -> bool:
    """Put one more operation before an operand: a function, a transposition of equal sizes, a reversal."""
    places = [i for i, v in enumerate(op.operands) if edit.is_float(v)]
    if not places or op.name in ("func.call", "stablehlo.reduce_window"):
        return False
    number = rng.choice(places)
    value, point = op.operands[number], ir.InsertionPoint(op)
    dims = edit.shape(value)
    pairs = [(i, j) for j in range(len(dims)) for i in range(j) if dims[i] == dims[j] > 1]
    if pairs and rng.random() < 0.6:
        i, j = rng.choice(pairs)
        order = list(range(len(dims)))
        order[i], order[j] = j, i
        made = edit.transpose(value, order, point)
    elif dims and max(dims) > 1 and rng.random() < 0.4:
        along = {"dimensions": edit.ints([dims.index(max(dims))])}
        made = edit.make("stablehlo.reverse", [value], value.type, point, along)
    else:
        name = rng.choice([n for n in _FLOAT_UNARY if n not in ("sign", "ceil", "floor")])
        made = edit.make(f"stablehlo.{name}", [value], value.type, point)
    op.operands[number] = made
    return True


def other_result(op: Any, rng: random.Random) -> bool:
    """Return another value, or two results exchanged."""
    end = edit.operations(op.block)[-1]
    return end.name == "func.return" and (
        rewired(end, rng) if rng.random() < 0.6 else _exchange_any(end, rng)
    )


def _exchange_any(end: Any, rng: random.Random) -> bool:
    operands = list(end.operands)
    pairs = [(i, j) for j in range(len(operands)) for i in range(j) if operands[i].type == operands[j].type]
    if not pairs:
        return False
    i, j = rng.choice(pairs)
    end.operands[i], end.operands[j] = operands[j], operands[i]
    return operands[i] != operands[j]


def exchanged_arguments(op: Any, rng: random.Random) -> bool:
    """Let two arguments of one type trade places."""
    arguments = list(op.block.arguments)
    pairs = [
        (i, j) for j in range(len(arguments)) for i in range(j) if arguments[i].type == arguments[j].type
    ]
    if not pairs:
        return False
    i, j = rng.choice(pairs)
    first, second = edit.uses(arguments[i]), edit.uses(arguments[j])
    edit.redirect(first, arguments[j])
    edit.redirect(second, arguments[i])
    return bool(first or second)


CHANGES: dict[str, Change] = {
    "other operation": other_operation,
    "other attribute": other_attribute,
    "other axis": other_axis,
    "other part": other_part,
    "other constant": other_constant,
    "other element type": other_element_type,
    "other argument type": other_argument_type,
    "swapped operands": swapped_operands,
    "rewired": rewired,
    "dropped": dropped,
    "inserted": inserted,
    "other result": other_result,
    "exchanged arguments": exchanged_arguments,
}


def changed(text: str, seed: int) -> tuple[str, str, str]:
    """Return a verified program that differs from ``text`` in one place, which change it is, and where.

    Each change is as likely as any other, as far as the program has a place for it.
    """
    rng = random.Random(seed)
    while True:
        name = rng.choice(list(CHANGES))
        for _ in range(_TRIES):
            module = edit.parse(text)
            where = _change(module, CHANGES[name], rng)
            if where is None:
                break
            if _verifies(module):
                return module.operation.get_asm(), name, where


#: How often a kind of change is tried before another: many numbers in attributes leave no valid program.
_TRIES = 8


def _change(module: Any, change: Change, rng: random.Random) -> str | None:
    """Apply a change somewhere; return the operation's name, None if there is no place for it."""
    everywhere = _reached(module)
    rng.shuffle(everywhere)
    for op in everywhere:
        where: str = op.name
        with edit.editing(module):
            if change(op, rng):
                return where
    return None


def _reached(module: Any) -> list[Any]:
    """Return the operations that a result may depend on: those with readers."""
    found = edit.everywhere(module)
    read = [op for op in found if any(edit.uses(result) for result in op.results)]
    return read or [edit.operations(edit.body(edit.main_of(module)))[-1]]


def _verifies(module: Any) -> bool:
    try:
        return bool(module.operation.verify())
    except ir.MLIRError:
        return False
