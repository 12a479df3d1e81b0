"""Scatters with one or two inputs, every combiner, and what they may promise; sorts with every comparator."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np

from tests.ops.generated.draft import Draft, Family, Shape
from tests.ops.generated.flags import Indices
from tests.ops.harness.compare import BITS
from tests.ops.harness.programs import OpProgram, total_ranks
from tests.ops.harness.values import ALL, COMPLEX, DTYPES, FLOATS, INTEGERS, SIGNED, tensor
from tests.ops.sort_scatter.scatter_programs import Scatter, scatter

_TOTAL = ", TOTALORDER"
#: Combiners of integers that are the same in any order.
_EXACT = ("maximum", "minimum", "and", "or", "xor", "add", "multiply")


#: Scatters that are drawn for one that is as wished.
_SCATTERS = 40


def families() -> dict[str, Family]:
    """Every operation of this file."""
    return {"scatter": Family(ALL, _scatter), "sort": Family(ALL, _sort)}


def _combiners(dtype: str) -> tuple[str, ...]:
    if dtype == "i1":
        return ("and", "or", "xor", "maximum", "minimum", "set")
    if dtype in INTEGERS:
        return (*_EXACT, "subtract", "ordered", "set")
    return ("add", "multiply", "maximum", "minimum", "subtract", "ordered", "set")


def _region(ops: list[str], dtypes: list[str]) -> str:
    """Each input is combined by its own operation; ``set`` takes what comes."""
    types = [tensor(dtype, ()) for dtype in dtypes]
    old = [f"%p{n}: {kind}" for n, kind in enumerate(types)]
    new = [f"%q{n}: {kind}" for n, kind in enumerate(types)]
    lines: list[str] = []
    for n, (op, kind) in enumerate(zip(ops, types, strict=True)):
        if op == "ordered":
            lines.append(f"%r{n} = stablehlo.subtract %q{n}, %p{n} : {kind}")
            lines.append(f"%s{n} = stablehlo.add %r{n}, %r{n} : {kind}")
        elif op != "set":
            lines.append(f"%s{n} = stablehlo.{op} %p{n}, %q{n} : {kind}")
    names = [f"%q{n}" if op == "set" else f"%s{n}" for n, op in enumerate(ops)]
    lines.append(f"stablehlo.return {', '.join(names)} : {', '.join(types)}")
    return f"{{\n  ^bb0({', '.join([*old, *new])}):\n    " + "\n    ".join(lines) + "\n  }"


def _scatter(draft: Draft) -> OpProgram:
    """Sums and products of floats keep the order of the updates, as the interpreter does."""
    drawn = _drawn(draft)
    if wished := draft.wished("index"):
        drawn = replace(drawn, index=wished)
    elif draft.edge:
        drawn = replace(drawn, index=draft.pick(("i16", "ui16", drawn.index)))
    numbers = _numbers(drawn)
    dtypes = [draft.dtype, *([draft.pick(("i32", "f32", draft.dtype))] if draft.chance(0.25) else [])]
    ops = [draft.pick(_combiners(dtype), "body") for dtype in dtypes]
    kind = draft.pick(("small", "tame", "any")) if not draft.wish.startswith("values ") else "any"
    tame = "finite" if draft.edge or draft.wish else "tame"
    if draft.dtype in COMPLEX and draft.wish in ("values inf", "values NaN"):
        ops[0], tame = draft.pick(("add", "subtract", "set")), "special"
    kinds = [tame if dtype in COMPLEX else kind for dtype in dtypes]
    inputs = [draft.argument(drawn.operand, *pair) for pair in zip(kinds, dtypes, strict=True)]
    where = draft.given(drawn.indices, _indices(draft, drawn), drawn.index)
    updates = [draft.argument(drawn.updates, *pair) for pair in zip(kinds, dtypes, strict=True)]
    known = Indices(
        draft.inputs[len(inputs)],
        drawn.index,
        drawn.indices,
        numbers,
        "scatter_dims_to_operand_dims",
        "input_batching_dims",
    )
    windows = "update_window_dims = []" in numbers  # windows of different indices may overlap
    flags = f"indices_are_sorted = {str(known.sorted()).lower()}"
    flags += f", unique_indices = {str(known.unique() and windows).lower()}"
    attributes = f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, {flags}"
    results = [(dtype, drawn.operand) for dtype in dtypes]
    outputs = draft.call([*inputs, where, *updates], results, attributes, [_region(ops, dtypes)])
    loose = (64.0, 1e-4) if draft.dtype in COMPLEX else (0.0, 0.0)
    return draft.program(outputs, *loose)


def _numbers(drawn: Scatter) -> str:
    return re.findall(r"#stablehlo.scatter<(.*?)>>?}", drawn.text)[0].rstrip(">")


def _drawn(draft: Draft) -> Scatter:
    """One whose shapes or dimension numbers are as wished, where one of many is."""
    drawn = scatter(draft.number(0, 10**9), draft.dtype, "set")
    for _ in range(_SCATTERS if draft.wish else 0):
        if _meets(draft.wish, drawn):
            break
        drawn = scatter(draft.number(0, 10**9), draft.dtype, "set")
    return drawn


def _meets(wish: str, drawn: Scatter) -> bool:
    shapes = (drawn.operand, drawn.indices, drawn.updates)
    if wish.startswith("rank "):
        return max(map(len, shapes)) == int(wish[5:])
    if wish.startswith("values "):
        return 0 not in drawn.operand
    if wish in ("one element", "empty"):
        return any(shape and math.prod(shape) == (wish != "empty") for shape in shapes)
    numbers = dict(re.findall(r"(\w+) = (\[[^\]]*\]|\d+)", _numbers(drawn)))
    if wish == "unique_indices true":
        empty = (numbers["update_window_dims"], numbers["input_batching_dims"])
        return empty == ("[]", "[]") and numbers["scatter_dims_to_operand_dims"] != "[]"
    axes = [int(axis) for axis in re.findall(r"\d+", numbers.get(wish.partition(" ")[0], ""))]
    if wish.endswith(" out of order"):
        return axes != sorted(axes)
    return bool(axes) and axes == sorted(axes) if wish.endswith(" in order") else True


def _indices(draft: Draft, drawn: Scatter) -> bytes:
    """Inside and outside; in order, or all different, now and then."""
    content = drawn.index_bytes(draft.number(0, 10**9))
    values = np.frombuffer(content, DTYPES[drawn.index][1])
    if draft.chance(0.3) and draft.wished("unique_indices") != "true":
        return np.sort(values).tobytes()
    if (draft.chance(0.3) or draft.wished("unique_indices") == "true") and values.size <= 100:
        return draft.rng.permutation(values.size).astype(values.dtype).tobytes()
    return content


def _sort(draft: Draft) -> OpProgram:
    """Of one to three operands, by the order of one of them, of two, of sizes, or the total one."""
    shape = draft.shape(1)
    axis = draft.number(0, len(shape) - 1, "dimension")
    count = draft.pick((0, 0, 1, 1, 2))
    count = {"body select": 1, "is_stable false": 0}.get(draft.wish, count)
    others = [draft.pick(("i32", "f32", "ui8", "f64", "i1")) for _ in range(count)]
    dtypes = [draft.dtype, *others]
    comparator, kind = _comparator(draft, dtypes)
    kinds = [kind, *("small" if dtype != "i1" else "any" for dtype in others)]
    may = {"values -0": "finite", "values subnormal": "finite", "values inf": "special"}.get(draft.wish, kind)
    operands = [
        draft.argument(shape, *pair, may=may if draft.dtype in COMPLEX else "")
        for pair in zip(kinds, dtypes, strict=True)
    ]
    # Where equal elements cannot be told apart, no order need be kept.
    alone = not others and kind != "any" and "real" not in comparator and "abs" not in comparator
    if draft.edge:
        whole = draft.dtype in ("i1", *INTEGERS) or (draft.dtype in COMPLEX and "real" in comparator)
        alone = not others and "abs" not in comparator and ((whole and kind != "bits") or kind == "small")
        alone &= draft.dtype not in COMPLEX or "imag" in comparator
    stable = "false" if alone and draft.chance(0.4 if not draft.wished("is_stable") else 1.0) else "true"
    stable = "true" if draft.wished("is_stable") == "true" else stable
    named = [f"%{'xyz'[n]}{side}: {tensor(dtype, ())}" for n, dtype in enumerate(dtypes) for side in "ab"]
    region = f"{{\n  ^bb0({', '.join(named)}):\n    {comparator}\n    stablehlo.return %s : tensor<i1>\n  }}"
    attributes = f"dimension = {axis} : i64, is_stable = {stable}"
    results = draft.call(operands, [(dtype, shape) for dtype in dtypes], attributes, [region])
    expected = None
    if _TOTAL in comparator:
        expected = _in_total_order(draft, dtypes, shape, axis, " LT," in comparator)
    return draft.program(results, BITS, expected=expected)


def _comparator(draft: Draft, dtypes: list[str]) -> tuple[str, str]:
    """Lines that give ``%s``, and the kind of values it orders."""
    way, dtype = draft.pick(("LT", "GT")), draft.dtype
    if dtype in COMPLEX:
        part, kind = tensor("f32" if dtype == "c64" else "f64", ()), tensor(dtype, ())
        if draft.edge and draft.chance(0.5):
            return _by_both_parts(way, draft.pick(("LT", "GT")), part, kind), "tame"
        take = draft.pick(("real", "imag"))
        lines = [f"%k{side} = stablehlo.{take} %x{side} : ({kind}) -> {part}" for side in "ab"]
        return "\n    ".join([*lines, _compare("%s", way, "%ka", "%kb", part)]), draft.pick(("tame", "small"))
    kind = tensor(dtype, ())
    ways = [(_compare("%s", way, "%xa", "%xb", kind), "any" if dtype not in FLOATS else "tame")]
    if dtype in FLOATS:
        ways.append((_compare("%s", way, "%xa", "%xb", kind, _TOTAL), "bits"))
        ways.append((_compare("%s", way, "%xa", "%xb", kind), "small"))
    if dtype in FLOATS or dtype in SIGNED:
        sizes = [f"%k{side} = stablehlo.abs %x{side} : {kind}" for side in "ab"]
        ways.append(("\n    ".join([*sizes, _compare("%s", way, "%ka", "%kb", kind)]), "tame"))
    if len(dtypes) > 1:
        second = tensor(dtypes[1], ())
        two = [_compare("%e", "EQ", "%xa", "%xb", kind), _compare("%f", way, "%xa", "%xb", kind)]
        two.append(_compare("%g", draft.pick(("LT", "GT")), "%ya", "%yb", second))
        two.append("%s = stablehlo.select %e, %g, %f : tensor<i1>, tensor<i1>")
        ways.append(("\n    ".join(two), "small"))
        ways.append((_compare("%s", way, "%ya", "%yb", second), "any"))
    return draft.pick(ways)


def _by_both_parts(way: str, second: str, part: str, kind: str) -> str:
    """Complex numbers by their real parts, and where these are equal by the others."""
    lines = [
        f"%k{take[0]}{side} = stablehlo.{take} %x{side} : ({kind}) -> {part}"
        for take in ("real", "imag")
        for side in "ab"
    ]
    lines.append(_compare("%e", "EQ", "%kra", "%krb", part))
    lines.append(_compare("%f", way, "%kra", "%krb", part))
    lines.append(_compare("%g", second, "%kia", "%kib", part))
    lines.append("%s = stablehlo.select %e, %g, %f : tensor<i1>, tensor<i1>")
    return "\n    ".join(lines)


def _in_total_order(draft: Draft, dtypes: list[str], shape: Shape, axis: int, rising: bool) -> list[bytes]:
    """What the interpreter does not do right."""
    arrays = [
        np.frombuffer(data, DTYPES[dtype][1]).reshape(shape)
        for data, dtype in zip(draft.inputs, dtypes, strict=True)
    ]
    ranks = total_ranks(draft.dtype, draft.inputs[0]).reshape(shape)
    order = np.argsort(ranks if rising else ~ranks, axis=axis, kind="stable")
    return [np.take_along_axis(array, order, axis).tobytes() for array in arrays]


def _compare(name: str, way: str, left: str, right: str, kind: str, order: str = "") -> str:
    return f"{name} = stablehlo.compare {way}, {left}, {right}{order} : ({kind}, {kind}) -> tensor<i1>"
