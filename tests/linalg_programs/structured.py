"""Structured operations: generics of any maps that permute loops, windows, and named ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.linalg_programs.draft import BINARY, DTYPES, FOLDS, Array, Draft, Inexact, Value, exact


def generic(draft: Draft) -> None:
    """Inputs in any order of loops, perhaps reduced; one or two results that may be added to."""
    first = draft.one()
    sizes = list(first.shape) + ([draft.rng.choice([*draft.sizes, 1, 2])] if draft.chance(0.3) else [])
    places = draft.rng.sample(range(len(sizes)), len(sizes))  # loop of each of these axes
    loops = [size for _, size in sorted(zip(places, sizes, strict=True))]
    if not draft.fits(loops):
        return
    ranks = [draft.rng.randint(0, len(loops)) for _ in range(draft.rng.randint(0, 2))]
    inputs = [(first, places[: len(first.shape)])]
    inputs += [_operand(draft, first.dtype, loops, rank) for rank in ranks]
    if {loop for _, walked in inputs for loop in walked} != set(range(len(loops))):
        inputs.append(_operand(draft, first.dtype, loops, len(loops)))
    reduced = [loop for loop in range(len(loops)) if draft.chance(0.3)]
    kept = [loop for loop in range(len(loops)) if loop not in reduced]
    outputs = [
        _operand(draft, first.dtype, [loops[loop] for loop in kept], len(kept))
        for _ in range(draft.rng.choice([1, 1, 2]))
    ]
    outputs = [(value, [kept[loop] for loop in walked]) for value, walked in outputs]
    body = _Body(draft, first.dtype, loops)
    operands = [body.argument(value, walked) for value, walked in inputs]
    totals = [body.argument(value, walked) for value, walked in outputs]
    pool = [*operands, *(() if reduced else totals)]
    if draft.chance(0.4) and first.dtype in ("i32", "i64"):
        pool.append(body.index(draft.rng.randrange(len(loops))))
    for _ in range(draft.rng.randint(0, 4)):
        op = draft.rng.choice(list(BINARY[first.dtype[0]]))
        pool.append(body.binary(op, draft.rng.choice(pool), draft.rng.choice(pool)))
    yielded: list[str] = []
    contents: list[Array] = []
    for (value, walked), total in zip(outputs, totals, strict=True):
        chosen = draft.rng.choice(pool[-3:])
        content = np.broadcast_to(chosen[1], loops)
        if reduced:
            op = draft.rng.choice(FOLDS[first.dtype[0]])
            exact(np.abs(content.astype(np.float64)).sum() if op == "addf" else 0, "f64")
            fold = BINARY[first.dtype[0]][op]
            content = fold.reduce(content, axis=tuple(reduced), dtype=DTYPES[first.dtype])
            chosen = body.binary(op, *draft.rng.sample([total, chosen], 2), computed=False)
            content = content.transpose([kept.index(loop) for loop in walked])
            content = fold(content, value.content)
        else:
            content = content.transpose(walked)
        yielded.append(chosen[0])
        contents.append(content)
    text = _text(
        inputs,
        outputs,
        reduced,
        len(loops),
        [*body.lines, f"linalg.yield {', '.join(yielded)} : {', '.join([first.dtype] * len(yielded))}"],
        body.names,
    )
    draft.results(text, [(first.dtype, content) for content in contents])


def _operand(draft: Draft, dtype: str, loops: Sequence[int], rank: int) -> tuple[Value, list[int]]:
    """A value that walks along some loops."""
    walked = draft.rng.sample(range(len(loops)), rank)
    return draft.like(dtype, [loops[loop] for loop in walked]), walked


_Scalar = tuple[str, Array]


@dataclass
class _Body:
    """The scalar code of a generic; each scalar with its values at all points of the loops."""

    draft: Draft
    dtype: str
    loops: list[int]
    lines: list[str] = field(default_factory=list[str])
    names: list[str] = field(default_factory=list[str])

    def argument(self, value: Value, walked: Sequence[int]) -> _Scalar:
        self.names.append(self.draft.name())
        content = value.content.transpose(np.argsort(walked)) if len(walked) else value.content
        sizes = [size if loop in walked else 1 for loop, size in enumerate(self.loops)]
        return self.names[-1], content.reshape(sizes)

    def index(self, loop: int) -> _Scalar:
        place, name = self.draft.name(), self.draft.name()
        self.lines += [
            f"{place} = linalg.index {loop} : index",
            f"{name} = arith.index_cast {place} : index to {self.dtype}",
        ]
        sizes = [size if other == loop else 1 for other, size in enumerate(self.loops)]
        return name, np.arange(self.loops[loop], dtype=DTYPES[self.dtype]).reshape(sizes)

    def binary(self, op: str, left: _Scalar, right: _Scalar, computed: bool = True) -> _Scalar:
        """``computed``: its values are wanted. Raises ``Inexact``."""
        name = self.draft.name()
        self.lines.append(f"{name} = arith.{op} {left[0]}, {right[0]} : {self.dtype}")
        result = BINARY[self.dtype[0]][op](left[1], right[1]) if computed else left[1]
        return name, exact(result, self.dtype)


def _text(
    inputs: Sequence[tuple[Value, list[int]]],
    outputs: Sequence[tuple[Value, list[int]]],
    reduced: Sequence[int],
    rank: int,
    body: Sequence[str],
    names: Sequence[str],
) -> str:
    dims = ", ".join(f"d{loop}" for loop in range(rank))
    every = [*inputs, *outputs]
    maps = ", ".join(
        f"affine_map<({dims}) -> ({', '.join(f'd{loop}' for loop in walked)})>" for _, walked in every
    )
    kinds = ", ".join('"reduction"' if loop in reduced else '"parallel"' for loop in range(rank))
    arguments = ", ".join(f"{name}: {value.dtype}" for name, (value, _) in zip(names, every, strict=True))
    types = ", ".join(value.type for value, _ in outputs)
    return (
        f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} {_given('ins', inputs)} "
        f"{_given('outs', outputs)} {{\n  ^bb0({arguments}):\n    "
        + "\n    ".join(body)
        + f"\n  }} -> {types if len(outputs) == 1 else f'({types})'}"
    )


def _given(role: str, values: Sequence[tuple[Value, list[int]]]) -> str:
    names, types = [value.name for value, _ in values], [value.type for value, _ in values]
    return f"{role}({', '.join(names)} : {', '.join(types)})"


def window(draft: Draft) -> None:
    """Sums or maxima of products along the last axis, with strides and dilation."""
    source = draft.one()
    size, (stride, step) = source.shape[-1], (draft.rng.choice([1, 1, 2, 3]), draft.rng.choice([1, 1, 2]))
    taps = draft.rng.randint(1, max(1, min(4, (size - 1) // step)))
    count = (size - (taps - 1) * step - 1) // stride + 1
    if count < 1:
        return
    dtype, letter = source.dtype, source.dtype[0]
    op = "addf" if letter == "f" else draft.rng.choice(["addi", "maxsi"])
    start, kernel = draft.like(dtype, (*source.shape[:-1], count)), draft.like(dtype, (taps,))
    total = start.content
    for tap in range(taps):
        part = source.content[..., tap * step : tap * step + (count - 1) * stride + 1 : stride]
        product = exact(part * kernel.content[tap], dtype)
        total = exact(BINARY[letter][op](total, product), dtype)
    rank = len(source.shape)
    dims = [f"d{loop}" for loop in range(rank + 1)]
    outer, moved = dims[: rank - 1], f"{dims[rank - 1]} * {stride} + {dims[rank]} * {step}"
    maps = [[*outer, moved], [dims[rank]], dims[:rank]]
    texts = ", ".join(f"affine_map<({', '.join(dims)}) -> ({', '.join(axes)})>" for axes in maps)
    kinds = ", ".join(['"parallel"'] * rank + ['"reduction"'])
    a, b, c, d, e = (draft.name() for _ in range(5))
    draft.value(
        f"linalg.generic {{indexing_maps = [{texts}], iterator_types = [{kinds}]}} "
        f"ins({source.name}, {kernel.name} : {source.type}, {kernel.type}) "
        f"outs({start.name} : {start.type}) {{\n"
        f"  ^bb0({a}: {dtype}, {b}: {dtype}, {c}: {dtype}):\n    {d} = arith.mul{letter} {a}, {b} : {dtype}\n"
        f"    {e} = arith.{op} {c}, {d} : {dtype}\n    linalg.yield {e} : {dtype}\n  }} -> {start.type}",
        dtype,
        total,
    )


def named(draft: Draft) -> None:
    """Transposed, repeated, reduced, combined, multiplied."""
    value = draft.one()
    dtype, letter, rank = value.dtype, value.dtype[0], len(value.shape)
    how = draft.rng.choice(["transpose", "broadcast", "reduce", "map", "whole", "matmul"])
    inputs = f"ins({value.name} : {value.type})"
    if how == "transpose":
        order = draft.rng.sample(range(rank), rank)
        into = draft.like(dtype, [value.shape[axis] for axis in order])
        draft.value(
            f"linalg.transpose {inputs} outs({into.name} : {into.type}) permutation = {order}",
            dtype,
            value.content.transpose(order),
        )
    elif how == "broadcast":
        place, size = draft.rng.randint(0, rank), draft.rng.choice(draft.sizes)
        shape = (*value.shape[:place], size, *value.shape[place:])
        if draft.fits(shape):
            into = draft.like(dtype, shape)
            draft.value(
                f"linalg.broadcast {inputs} outs({into.name} : {into.type}) dimensions = [{place}]",
                dtype,
                np.broadcast_to(np.expand_dims(value.content, place), shape),
            )
    elif how == "reduce":
        axis, op = draft.rng.randrange(rank), draft.rng.choice(FOLDS[letter])
        into = draft.like(dtype, [size for place, size in enumerate(value.shape) if place != axis])
        fold = BINARY[letter][op]
        result = fold(fold.reduce(value.content, axis=axis, dtype=DTYPES[dtype]), into.content)
        draft.value(
            f"linalg.reduce {{ arith.{op} }} {inputs} outs({into.name} : {into.type}) dimensions = [{axis}]",
            dtype,
            result,
        )
    elif how == "map":
        other, into = draft.like(dtype, value.shape), draft.like(dtype, value.shape)
        op = draft.rng.choice(list(BINARY[letter]))
        both = f"ins({value.name}, {other.name} : {value.type}, {value.type})"
        draft.value(
            f"linalg.map {{ arith.{op} }} {both} outs({into.name} : {into.type})",
            dtype,
            BINARY[letter][op](value.content, other.content),
        )
    elif how == "whole":
        other, op = draft.like(dtype, value.shape), draft.rng.choice(list(BINARY[letter]))
        result = BINARY[letter][op](value.content, other.content)
        draft.value(f"arith.{op} {value.name}, {other.name} : {value.type}", dtype, result)
    elif rank == 2:
        other = draft.like(dtype, (value.shape[1], draft.rng.choice(draft.sizes)))
        into = draft.like(dtype, (value.shape[0], other.shape[1]))
        if (
            letter == "f"
            and value.shape[1] * np.abs(value.content).max() * np.abs(other.content).max() > 2**20
        ):
            raise Inexact
        both = f"ins({value.name}, {other.name} : {value.type}, {other.type})"
        result = value.content @ other.content + into.content
        draft.value(f"linalg.matmul {both} outs({into.name} : {into.type}) -> {into.type}", dtype, result)
