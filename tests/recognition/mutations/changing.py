"""Changes what a program means, in one random place: another operation, attribute, axis, constant, element
type, order of operands, wiring or result.

A change may by chance mean the same (a rewired operand that is equal): ``tests.recognition.meaning`` tells.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.recognition.mutations import edit
from tests.recognition.mutations.changing_constants import (
    other_attribute,
    other_axis,
    other_constant,
    other_part,
)
from tests.recognition.mutations.edit import ir

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


def _replace(op: Any, value: Any) -> bool:
    op.results[0].replace_all_uses_with(value)
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
    values = list(op.block.arguments)
    for view in op.block.operations:
        if view.operation == op:
            break
        values.extend(view.operation.results)
    return values


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
        result = edit.transpose(value, order, point)
    elif dims and max(dims) > 1 and rng.random() < 0.4:
        along = {"dimensions": edit.ints([dims.index(max(dims))])}
        result = edit.make("stablehlo.reverse", [value], value.type, point, along)
    else:
        name = rng.choice([n for n in _FLOAT_UNARY if n not in ("sign", "ceil", "floor")])
        result = edit.make(f"stablehlo.{name}", [value], value.type, point)
    op.operands[number] = result
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
    operations = edit.everywhere(module)
    read = [op for op in operations if any(edit.uses(result) for result in op.results)]
    return read or [edit.operations(edit.body(edit.main_of(module)))[-1]]


def _verifies(module: Any) -> bool:
    try:
        return bool(module.operation.verify())
    except ir.MLIRError:
        return False
