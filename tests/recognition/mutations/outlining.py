"""Moves parts of programs into private functions and calls back in line; other parameters for the former."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.recognition.mutations import edit
from tests.recognition.mutations.edit import ir


def outlined(module: Any, rng: random.Random) -> None:
    """Move a random part of a function into a function of its own."""
    function = rng.choice(edit.functions(module))
    *inside, _ = edit.operations(edit.body(function))
    if not inside:
        return
    part = _cone(inside, rng) if rng.random() < 0.5 else _stretch(inside, rng)
    _outline(module, function, part, f"part{rng.randrange(10**9)}")


def _cone(inside: list[Any], rng: random.Random) -> list[Any]:
    """Return an operation with producers that nothing else needs, in order: connected, and convex."""
    part = {rng.choice(inside)}
    most = rng.randint(1, 12)
    for op in reversed(inside):
        readers = {_in_block(owner, op) for result in op.results for owner, _ in edit.uses(result)}
        if len(part) < most and readers and readers <= part:
            part.add(op)
    return [op for op in inside if op in part]


def _in_block(op: Any, sibling: Any) -> Any:
    """Return the operation around ``op`` in the block of ``sibling``."""
    while op.block != sibling.block:
        op = op.parent.operation
    return op


def _stretch(inside: list[Any], rng: random.Random) -> list[Any]:
    start = rng.randrange(len(inside))
    return inside[start : start + rng.randint(1, 12)]


def _outline(module: Any, function: Any, part: Sequence[Any], name: str) -> None:
    chosen = set(part)
    inputs: list[Any] = []
    for op in part:
        for value in edit.reads(op):
            outside = isinstance(value.owner, ir.Block) or value.owner.operation not in chosen
            if outside and _belongs(value, part[-1]) and value not in inputs:
                inputs.append(value)
    outputs = [
        result
        for op in part
        for result in op.results
        if any(_in_block(owner, op) not in chosen for owner, _ in edit.uses(result))
    ]
    type = ir.FunctionType.get([v.type for v in inputs], [v.type for v in outputs])
    operation = ir.Operation.create(
        "func.func",
        attributes={
            "sym_name": ir.StringAttr.get(name),
            "function_type": ir.TypeAttr.get(type),
            "sym_visibility": ir.StringAttr.get("private"),
        },
        regions=1,
        ip=ir.InsertionPoint(function),
    )
    block = operation.regions[0].blocks.append(*type.inputs, arg_locs=[ir.Location.unknown()] * len(inputs))
    known = dict(zip(inputs, block.arguments, strict=True))
    point = ir.InsertionPoint(block)
    _clone_all(part, known, point)
    _create("func.return", [known[v] for v in outputs], [], {}, point)
    callee = {"callee": ir.FlatSymbolRefAttr.get(name)}
    call = _create("func.call", inputs, list(type.results), callee, ir.InsertionPoint(part[-1]))
    for old, new in zip(outputs, call.results, strict=True):
        old.replace_all_uses_with(new)
    for op in reversed(part):
        op.erase()


def _create(
    name: str, operands: list[Any], results: list[Any], attributes: dict[str, Any], point: Any
) -> Any:
    return ir.Operation.create(name, results=results, operands=operands, attributes=attributes, ip=point)


def _belongs(value: Any, sibling: Any) -> bool:
    """Whether a value is of the block of ``sibling``, not of a region inside."""
    block = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
    return block == sibling.block


def _clone_all(part: Sequence[Any], known: dict[Any, Any], point: Any) -> None:
    """Clone operations; operands that are ``known`` are replaced, in regions too."""
    for op in part:
        copy = op.clone(point)

        def replace(inner: Any) -> Any:
            for number, value in enumerate(inner.operands):
                if value in known:
                    inner.operands[number] = known[value]
            return ir.WalkResult.ADVANCE

        copy.walk(replace, ir.WalkOrder.PRE_ORDER)
        known.update(zip(op.results, copy.results, strict=True))


def inlined(module: Any, rng: random.Random) -> None:
    """Put some calls in line."""
    bodies = {edit.name_of(f): f for f in edit.functions(module)}
    calls = [op for op in edit.everywhere(module) if op.name == "func.call"]
    for call in edit.some(rng, calls, 0.5):
        *inside, end = edit.operations(edit.body(bodies[call.attributes["callee"].value]))
        known = dict(
            zip(edit.body(bodies[call.attributes["callee"].value]).arguments, call.operands, strict=True)
        )
        _clone_all(inside, known, ir.InsertionPoint(call))
        for old, value in zip(call.results, end.operands, strict=True):
            old.replace_all_uses_with(known[value])
        call.erase()


def resigned(module: Any, rng: random.Random) -> None:
    """Let a private function take its parameters in another order, one of them twice, and give its results
    in another order.
    """
    calls = [op for op in edit.everywhere(module) if op.name == "func.call"]
    if not calls:
        return
    name = rng.choice(calls).attributes["callee"].value
    function = next(f for f in edit.functions(module) if edit.name_of(f) == name)
    block = edit.body(function)
    arguments, (*_, end) = list(block.arguments), edit.operations(block)
    order = rng.sample(range(len(arguments)), len(arguments))
    order += rng.sample(order, min(1, len(order)))
    shown = rng.sample(range(len(end.operands)), len(end.operands))
    for old in order:
        replacement = block.add_argument(arguments[old].type, ir.Location.unknown())
        if rng.random() < 0.5 or old not in order[: len(block.arguments) - len(arguments) - 1]:
            arguments[old].replace_all_uses_with(replacement)
    for _ in arguments:
        block.erase_argument(0)
    returned = list(end.operands)
    _create("func.return", [returned[i] for i in shown], [], {}, ir.InsertionPoint(end))
    end.erase()
    type = ir.FunctionType.get([a.type for a in block.arguments], [returned[i].type for i in shown])
    function.attributes["function_type"] = ir.TypeAttr.get(type)
    for attribute in ("arg_attrs", "res_attrs"):
        if attribute in function.attributes:
            del function.attributes[attribute]
    for call in calls:
        if call.attributes["callee"].value != name:
            continue
        operands = [call.operands[i] for i in order]
        callee = {"callee": call.attributes["callee"]}
        replacement = _create("func.call", operands, list(type.results), callee, ir.InsertionPoint(call))
        for place, i in enumerate(shown):
            call.results[i].replace_all_uses_with(replacement.results[place])
        call.erase()
