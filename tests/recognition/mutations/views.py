"""Rewrites of views: layouts, reshapes, broadcasts, and the sides of matrix products."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from tests.recognition.mutations import edit
from tests.recognition.mutations.edit import ir


def _pick_value(module: Any, rng: random.Random, rank: int = 0) -> tuple[Any, Any] | None:
    """Return a block and a value in it that is read, of at least ``rank`` dims."""
    block = rng.choice([edit.body(f) for f in edit.functions(module)])
    candidates = [v for v in edit.values(block) if len(v.type.shape) >= rank and edit.uses(v)]
    return (block, rng.choice(candidates)) if candidates else None


def transposed_twice(module: Any, rng: random.Random) -> None:
    """Transpose a value and back."""
    picked = _pick_value(module, rng, 2)
    if picked is None:
        return
    block, value = picked
    before = edit.uses(value)
    order = rng.sample(range(len(value.type.shape)), len(value.type.shape))
    turned = edit.transpose(value, order, edit.after(value, block))
    back = edit.transpose(turned, [order.index(d) for d in range(len(order))], edit.after(turned, block))
    edit.redirect(edit.some(rng, before), back)


def computed_transposed(module: Any, rng: random.Random) -> None:
    """Compute elementwise operations in another layout."""
    candidates = [
        op
        for op in edit.everywhere(module)
        if op.name in edit.ELEMENTWISE and len(op.results[0].type.shape) > 1
    ]
    for op in edit.some(rng, candidates, 0.2):
        rank = len(op.results[0].type.shape)
        order = rng.sample(range(rank), rank)
        point = ir.InsertionPoint(op)
        copy = op.clone(point)
        dims = edit.shape(op.results[0])
        type = edit.tensor([dims[d] for d in order], op.results[0])
        operands = [
            edit.transpose(v, order, ir.InsertionPoint(copy)) if v.type.shape else v for v in op.operands
        ]
        attributes = {name: str(op.attributes[name]) for name in op.attributes}
        result = edit.make(op.name, operands, type, point, attributes)
        back = edit.transpose(result, [order.index(d) for d in range(rank)], point)
        op.results[0].replace_all_uses_with(back)
        copy.erase()


def reshaped_twice(module: Any, rng: random.Random) -> None:
    """Reshape a value and back: with unit dims, with dims merged, flat."""
    picked = _pick_value(module, rng)
    if picked is None:
        return
    block, value = picked
    before = edit.uses(value)
    dims = edit.shape(value)
    other = list(dims)
    for _ in range(rng.randint(1, 2)):
        if rng.random() < 0.5 or len(other) < 2:
            other.insert(rng.randint(0, len(other)), 1)
        else:
            at = rng.randrange(len(other) - 1)
            other[at : at + 2] = [other[at] * other[at + 1]]
    reshaped = edit.reshape(value, other, edit.after(value, block))
    edit.redirect(edit.some(rng, before), edit.reshape(reshaped, dims, edit.after(reshaped, block)))


def broadcast_in_steps(module: Any, rng: random.Random) -> None:
    """Split broadcasts: through unit dims, or some dims first."""
    candidates = [op for op in edit.everywhere(module) if op.name == "stablehlo.broadcast_in_dim"]
    for op in edit.some(rng, candidates, 0.3):
        (value,), (result,) = list(op.operands), list(op.results)
        dims = list(op.attributes["broadcast_dimensions"])
        wanted = edit.shape(result)
        point = ir.InsertionPoint(op)
        if rng.random() < 0.5 and dims == sorted(dims):
            units = [1] * len(wanted)
            for size, dim in zip(edit.shape(value), dims, strict=True):
                units[dim] = size
            reshaped = edit.reshape(value, units, point)
            reshaped = edit.broadcast(reshaped, range(len(wanted)), result.type, point)
        else:
            first = sorted({*dims, *(d for d in range(len(wanted)) if rng.random() < 0.5)})
            sizes = [wanted[d] for d in first]
            reshaped = edit.broadcast(value, [first.index(d) for d in dims], edit.tensor(sizes, value), point)
            reshaped = edit.broadcast(reshaped, first, result.type, point)
        result.replace_all_uses_with(reshaped)


def constants_respelled(module: Any, rng: random.Random) -> None:
    """Write constants of one value as broadcast scalars, and broadcast scalars as constants."""
    for op in edit.everywhere(module):
        if rng.random() < 0.5:
            continue
        if op.name == "stablehlo.constant":
            attribute, result = op.attributes["value"], op.results[0]
            if not result.type.shape or not getattr(attribute, "is_splat", False):
                continue
            scalar = ir.DenseElementsAttr.get_splat(edit.tensor([], result), attribute.get_splat_value())
            constant = _constant(scalar, op)
            result.replace_all_uses_with(edit.broadcast(constant, [], result.type, ir.InsertionPoint(op)))
        elif op.name == "stablehlo.broadcast_in_dim":
            owner, result = op.operands[0].owner, op.results[0]
            if isinstance(owner, ir.Block) or owner.operation.name != "stablehlo.constant":
                continue
            attribute = owner.operation.attributes["value"]
            if getattr(attribute, "is_splat", False):
                splat = ir.DenseElementsAttr.get_splat(result.type, attribute.get_splat_value())
                result.replace_all_uses_with(_constant(splat, op))


def _constant(attribute: Any, before: Any) -> Any:
    where = ir.InsertionPoint(before)
    constant = ir.Operation.create(
        "stablehlo.constant", results=[attribute.type], attributes={"value": attribute}, ip=where
    )
    return constant.results[0]


def passed_through(module: Any, rng: random.Random) -> None:
    """Pass values through what does nothing: barriers, conversions to their own type, negating twice."""
    for _ in range(rng.randint(1, 3)):
        picked = _pick_value(module, rng)
        if picked is None:
            return
        block, value = picked
        before, where = edit.uses(value), edit.after(value, block)
        name = rng.choice(["optimization_barrier", "convert", "negate"])
        if name == "negate" and not edit.is_float(value):
            name = "convert"
        result = edit.make(f"stablehlo.{name}", [value], value.type, where)
        if name == "negate":
            result = edit.make("stablehlo.negate", [result], value.type, edit.after(result, block))
        edit.redirect(edit.some(rng, before), result)


def contracted_the_other_way(module: Any, rng: random.Random) -> None:
    """Swap the sides of matrix products, and transpose what comes out."""
    candidates = [op for op in edit.everywhere(module) if op.name == "stablehlo.dot_general"]
    for op in edit.some(rng, candidates, 0.4):
        batch, left, right, turned = _turned_numbers(str(op.attributes["dot_dimension_numbers"]))
        free = [len(v.type.shape) - batch - n for v, n in zip(op.operands, (left, right), strict=True)]
        dims = edit.shape(op.results[0])
        order = [*range(batch), *range(batch + free[0], batch + sum(free)), *range(batch, batch + free[0])]
        type = edit.tensor([dims[d] for d in order], op.results[0])
        attributes = {name: str(op.attributes[name]) for name in op.attributes} | {
            "dot_dimension_numbers": turned
        }
        point = ir.InsertionPoint(op)
        result = edit.make(op.name, [op.operands[1], op.operands[0]], type, point, attributes)
        back = edit.transpose(result, [order.index(d) for d in range(len(order))], point)
        op.results[0].replace_all_uses_with(back)


def _turned_numbers(text: str) -> tuple[int, int, int, str]:
    """Return how many dims are batches, and contracted left and right, and the text for swapped sides."""
    swap = {"lhs": "rhs", "rhs": "lhs"}
    parts = text.removeprefix("#stablehlo.dot<").removesuffix(">").replace("\n", " ").split("_dimensions = [")
    counts = {"batching": 0, "contracting": 0}
    lists: dict[str, str] = {}
    for name, rest in pairwise(parts):
        side, kind = name.rsplit(maxsplit=1)[-1].split("_")
        numbers = rest.partition("]")[0]
        counts[kind] = len(numbers.split(","))
        lists[f"{swap[side]}_{kind}"] = numbers
    turned = ", ".join(
        f"{key}_dimensions = [{lists[key]}]"
        for key in ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
        if key in lists
    )
    return counts["batching"], counts["contracting"], counts["contracting"], f"#stablehlo.dot<{turned}>"
