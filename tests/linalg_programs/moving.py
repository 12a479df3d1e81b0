"""What moves elements, and what chooses and repeats: slices, padding, other shapes, loops, branches."""

from __future__ import annotations

import numpy as np

from tests.linalg_programs.draft import BINARY, Draft, Value, exact, tensor


def cut_or_put(draft: Draft) -> None:
    """A slice with strides, or one put into its place."""
    value = draft.one()
    first = [draft.rng.randint(0, size // 2) if size > 1 else 0 for size in value.shape]
    step = [draft.rng.choice([1, 1, 1, 2, 3]) for _ in value.shape]
    count = [
        draft.rng.randint(1, (size - at - 1) // by + 1)
        for size, at, by in zip(value.shape, first, step, strict=True)
    ]
    where = tuple(
        slice(at, at + (many - 1) * by + 1, by) for at, many, by in zip(first, count, step, strict=True)
    )
    place = f"{first} {count} {step}"
    if draft.chance(0.4):
        kind = tensor(value.dtype, count)
        draft.value(
            f"tensor.extract_slice {value.name}{place} : {value.type} to {kind}",
            value.dtype,
            value.content[where],
        )
        return
    part, updated = draft.like(value.dtype, count), value.content.copy()
    updated[where] = part.content
    draft.value(
        f"tensor.insert_slice {part.name} into {value.name}{place} : {part.type} into {value.type}",
        value.dtype,
        updated,
    )


def padded(draft: Draft) -> None:
    value = draft.one()
    low = [draft.rng.choice([0, 1, 3]) for _ in value.shape]
    high = [draft.rng.choice([0, 2]) for _ in value.shape]
    result = np.pad(value.content, list(zip(low, high, strict=True)), constant_values=7)
    if not draft.fits(result.shape):
        return
    number = draft.name()
    seven = "7.0" if value.dtype[0] == "f" else "7"
    draft.lines.append(f"{number} = arith.constant {seven} : {value.dtype}")
    places = ", ".join(f"{draft.name()}: index" for _ in value.shape)
    draft.value(
        f"tensor.pad {value.name} low{low} high{high} {{\n  ^bb0({places}):\n"
        f"    tensor.yield {number} : {value.dtype}\n"
        f"  }} : {value.type} to {tensor(value.dtype, result.shape)}",
        value.dtype,
        result,
    )


def reshaped(draft: Draft) -> None:
    """Two axes as one, or one as two."""
    value = draft.one()
    shape, rank = value.shape, len(value.shape)
    at = draft.rng.randrange(rank)
    if rank > 1 and draft.chance(0.5):
        at = min(at, rank - 2)
        new = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
        groups = [*([axis] for axis in range(at)), [at, at + 1], *([axis] for axis in range(at + 2, rank))]
        text = f"tensor.collapse_shape {value.name} {groups} : {value.type} into {tensor(value.dtype, new)}"
    else:
        factor = next((number for number in (2, 3, 5, 7) if shape[at] % number == 0), 1)
        new = (*shape[:at], factor, shape[at] // factor, *shape[at + 1 :])
        groups = [
            *([axis] for axis in range(at)),
            [at, at + 1],
            *([axis + 1] for axis in range(at + 1, rank)),
        ]
        text = (
            f"tensor.expand_shape {value.name} {groups} output_shape {list(new)} : {value.type} into "
            f"{tensor(value.dtype, new)}"
        )
    draft.value(text, value.dtype, value.content.reshape(new))


def looped(draft: Draft) -> None:
    """Rows of what a loop carries, or of a value, combined and put back: forward, or from both ends."""
    value = draft.one()
    rows = value.shape[0]
    if rows > 40 or value.dtype[0] == "f":
        return
    carried, op = draft.like(value.dtype, value.shape), draft.rng.choice(list(BINARY["i"]))
    own, opposite, back = draft.chance(0.5), draft.chance(0.5), draft.chance(0.5)
    low, high, unit, last, turn, held, other, a, b, c, d = (draft.name() for _ in range(11))
    for name, number in ((low, 0), (high, rows), (unit, 1), (last, rows - 1)):
        draft.lines.append(f"{name} = arith.constant {number} : index")
    part = tensor(value.dtype, (1, *value.shape[1:]))
    rest = "".join(f", {number}" for number in [0] * (len(value.shape) - 1))
    sizes, steps = f"{[1, *value.shape[1:]]}", f"{[1] * len(value.shape)}"
    source = held if own else value.name
    body = (
        f"{other} = arith.{f'subi {last}, {turn}' if opposite else f'addi {turn}, {low}'} : index",
        f"{a} = tensor.extract_slice {value.name}[{turn}{rest}] {sizes} {steps} : {value.type} to {part}",
        f"{b} = tensor.extract_slice {source}[{other}{rest}] {sizes} {steps} : {value.type} to {part}",
        f"{c} = linalg.map {{ arith.{op} }} ins({a}, {b} : {part}, {part}) outs({a} : {part})",
        f"{d} = tensor.insert_slice {c} into {held}[{other if back else turn}{rest}] {sizes} {steps} : "
        f"{part} into {value.type}",
        f"scf.yield {d} : {value.type}",
    )
    result = carried.content.copy()
    for row in range(rows):
        far = rows - 1 - row if opposite else row
        read = (result if own else value.content)[far]
        result[far if back else row] = BINARY["i"][op](value.content[row], read)
    draft.value(
        f"scf.for {turn} = {low} to {high} step {unit} iter_args({held} = {carried.name}) "
        f"-> ({value.type}) {{\n    " + "\n    ".join(body) + "\n  }",
        value.dtype,
        result,
    )


def branched(draft: Draft) -> None:
    """What two values make, or the second of them."""
    value = draft.one()
    other, asked = draft.like(value.dtype, value.shape), draft.like("i32", ())
    op = draft.rng.choice(list(BINARY[value.dtype[0]]))
    result = exact(BINARY[value.dtype[0]][op](value.content, other.content), value.dtype)
    number, zero, truth, inner = (draft.name() for _ in range(4))
    draft.lines += [
        f"{number} = tensor.extract {asked.name}[] : tensor<i32>",
        f"{zero} = arith.constant 0 : i32",
        f"{truth} = arith.cmpi sgt, {number}, {zero} : i32",
    ]
    draft.value(
        f"scf.if {truth} -> ({value.type}) {{\n    {_mapped(inner, op, value, other)}\n"
        f"    scf.yield {inner} : {value.type}\n  }} else {{\n"
        f"    scf.yield {other.name} : {value.type}\n  }}",
        value.dtype,
        result if asked.content > 0 else other.content,
    )


def _mapped(name: str, op: str, value: Value, other: Value) -> str:
    both = f"ins({value.name}, {other.name} : {value.type}, {value.type})"
    return f"{name} = linalg.map {{ arith.{op} }} {both} outs({value.name} : {value.type})"
