"""Writes a program differently without changing what it means: one key, whatever the seed.

Each rewrite changes a native module in place, at a random place, and no value by a bit, but that a reduction
may be written with other dims first. ``rewritten`` applies a random sequence of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from kcache_compiler.frontends.limits import INLINE_CONSTANT_BYTES
from tests.recognition.mutations import edit, forms, outlining, views
from tests.recognition.mutations.edit import ir

Rewrite = Callable[[Any, random.Random], None]


def reordered(module: Any, rng: random.Random) -> None:
    """Put the operations of every block into a random topological order."""
    for block in edit.blocks(module):
        *inside, end = edit.operations(block)
        position = {op: i for i, op in enumerate(inside)}
        waiting = [
            {position[p] for p in edit.producers(op) if p in position} - {i} for i, op in enumerate(inside)
        ]
        readers: list[list[int]] = [[] for _ in inside]
        for i, needed in enumerate(waiting):
            for producer in needed:
                readers[producer].append(i)
        ready = [i for i, needed in enumerate(waiting) if not needed]
        while ready:
            chosen = ready.pop(rng.randrange(len(ready)))
            inside[chosen].move_before(end)
            for reader in readers[chosen]:
                waiting[reader].discard(chosen)
                if not waiting[reader]:
                    ready.append(reader)


def commuted(module: Any, rng: random.Random) -> None:
    """Swap operands of commutative operations, and the sides of comparisons."""
    for op in edit.everywhere(module):
        if rng.random() < 0.5:
            continue
        if op.name in edit.COMMUTATIVE:
            op.operands[0], op.operands[1] = op.operands[1], op.operands[0]
        elif op.name == "stablehlo.compare":
            op.operands[0], op.operands[1] = op.operands[1], op.operands[0]
            direction = str(op.attributes["comparison_direction"])
            for old, other in (("GT", "LT"), ("LT", "GT"), ("GE", "LE"), ("LE", "GE")):
                if f" {old}>" in direction:
                    turned = direction.replace(f" {old}>", f" {other}>")
                    op.attributes["comparison_direction"] = ir.Attribute.parse(turned)
                    break


def duplicated(module: Any, rng: random.Random) -> None:
    """Compute a value a second time, with some of what it is made of, and let some uses read that."""
    for block in edit.some(rng, edit.blocks(module), 0.4):
        for op in edit.some(rng, edit.operations(block)[:-1], 0.15):
            copy = _copied(op, rng, rng.randint(0, 4))
            for old, new in zip(op.results, copy.results, strict=True):
                edit.redirect(edit.some(rng, [u for u in edit.uses(old) if u[0] != copy]), new)


def _copied(op: Any, rng: random.Random, depth: int) -> Any:
    copy = op.clone(ir.InsertionPoint(op))
    for number, value in enumerate(copy.operands):
        owner = value.owner
        if (
            depth
            and not isinstance(owner, ir.Block)
            and owner.operation.parent == op.parent
            and rng.random() < 0.7
        ):
            if owner.operation.block != op.block:
                continue
            inner = _copied(owner.operation, rng, depth - 1)
            copy.operands[number] = inner.results[list(owner.operation.results).index(value)]
    return copy


def dead(module: Any, rng: random.Random) -> None:
    """Add operations and functions that nothing needs."""
    for block in edit.some(rng, edit.blocks(module), 0.5):
        *inside, end = edit.operations(block)
        for op in edit.some(rng, inside, 0.15):
            op.clone(ir.InsertionPoint(end))
        floats = [v for v in edit.values(block) if edit.is_float(v)]
        for value in edit.some(rng, floats, 0.1):
            name = rng.choice(["tanh", "exponential", "sqrt", "negate", "log", "rsqrt"])
            result = edit.make(f"stablehlo.{name}", [value], value.type, ir.InsertionPoint(end))
            edit.make("stablehlo.add", [result, value], value.type, ir.InsertionPoint(end))
    source = rng.choice(list(edit.functions(module)))
    copy = source.clone(ir.InsertionPoint(source))
    copy.attributes["sym_name"] = ir.StringAttr.get(f"unused{rng.randrange(10**9)}")
    copy.attributes["sym_visibility"] = ir.StringAttr.get("private")


def other_weights(module: Any, rng: random.Random) -> None:
    """Give the constants that are lifted other values: equal ones equal values."""
    weights: dict[str, Any] = {}
    for op in edit.everywhere(module):
        if op.name != "stablehlo.constant" or not edit.is_float(op.results[0]):
            continue
        type = op.results[0].type
        attribute = op.attributes["value"]
        size = math.prod(type.shape) * type.element_type.width // 8
        if size <= INLINE_CONSTANT_BYTES or getattr(attribute, "is_splat", False):
            continue
        key = str(attribute)
        if key not in weights:
            numbers = np.random.default_rng(rng.randrange(2**32)).standard_normal(type.shape)
            weights[key] = ir.DenseElementsAttr.get(numbers.astype(np.float32), type=type)
        op.attributes["value"] = weights[key]


def annotated(module: Any, rng: random.Random) -> None:
    """Add attributes of dialects that no one reads: they promise nothing about values."""
    for op in edit.some(rng, edit.everywhere(module), 0.2):
        name = rng.choice(["mhlo.frontend_attributes", "jax.note", "mhlo.sharding"])
        op.attributes[name] = ir.StringAttr.get(f"note {rng.randrange(100)}")


REWRITES: dict[str, Rewrite] = {
    "reordered": reordered,
    "commuted": commuted,
    "duplicated": duplicated,
    "dead code": dead,
    "outlined": outlining.outlined,
    "inlined": outlining.inlined,
    "signatures changed": outlining.resigned,
    "annotated": annotated,
    "other weights": other_weights,
    "transposed twice": views.transposed_twice,
    "computed transposed": views.computed_transposed,
    "reshaped twice": views.reshaped_twice,
    "broadcast in steps": views.broadcast_in_steps,
    "constants respelled": views.constants_respelled,
    "passed through": views.passed_through,
    "contracted the other way": views.contracted_the_other_way,
}


def apply(name: str, module: Any, rng: random.Random) -> None:
    """Apply one rewrite, in place."""
    with edit.editing(module):
        REWRITES[name](module, rng)


def rewritten(text: str, seed: int) -> tuple[bytes, list[str]]:
    """Return a program that means what ``text`` means, and the names of the rewrites that made it."""
    rng = random.Random(seed)
    module = edit.parse(text)
    applied = rng.choices(list(REWRITES), k=rng.randint(3, 8))
    for name in applied:
        apply(name, module, rng)
    assert module.operation.verify(), applied
    form = rng.choice(list(forms.FORMS))
    return forms.FORMS[form](module, rng), [*applied, form]
