"""Changes the numbers of an operation: attributes, axes, parts, constants."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from typing import Any

import numpy as np

from tests.recognition.mutations import edit
from tests.recognition.mutations.edit import ir

_DIRECTIONS = ["EQ", "NE", "LT", "LE", "GT", "GE"]
#: Attributes that promise something to a compiler and compute nothing.
_HINTS = {"indices_are_sorted", "unique_indices", "precision_config", "compare_type"}


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
    current = place[0]
    if current in _DIRECTIONS:
        new = rng.choice([d for d in _DIRECTIONS if d != current])
    elif current in ("true", "false"):
        new = "true" if current == "false" else "false"
    else:
        new = str(int(current) + rng.choice([-2, -1, 1, 2]))
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
    axes = [new for new in candidates(len(old), operand, result) if new != old]
    if not axes:
        return False
    op.attributes[name] = ir.Attribute.parse(edit.ints(rng.choice(axes)))
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
        replacement = ir.FloatAttr.get(type.element_type, new)
    else:
        number = int(str(value).partition(" : ")[0].replace("true", "1").replace("false", "0"))
        replacement = ir.IntegerAttr.get(
            type.element_type, number ^ 1 if type.element_type.width == 1 else number + rng.choice([-1, 1, 2])
        )
    op.attributes["value"] = ir.DenseElementsAttr.get_splat(type, replacement)
    return True


def nudged(text: str) -> Iterator[str]:
    """Yield the program with each of its repeated f32 constants greater by the least that f32 knows."""
    for number in range(len(edit.everywhere(edit.parse(text)))):
        module = edit.parse(text)
        op = edit.everywhere(module)[number]
        if op.name != "stablehlo.constant" or str(op.results[0].type.element_type) != "f32":
            continue
        if not getattr(op.attributes["value"], "is_splat", False):
            continue
        value = np.float32(op.attributes["value"].get_splat_value().value)
        if not np.isfinite(value):
            continue
        with edit.editing(module):
            more = ir.FloatAttr.get(ir.F32Type.get(), float(np.nextafter(value, np.float32(np.inf))))
            op.attributes["value"] = ir.DenseElementsAttr.get_splat(op.results[0].type, more)
        yield module.operation.get_asm()
