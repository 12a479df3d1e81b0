"""What a program is drawn for: a class of an attribute, of a shape or of a value, as ``classes.py`` names it.

Choices that know the name of their attribute (``Draft.pick``, ``Draft.number``, ``Draft.axes``) take what is
wished of it; shapes and arguments take what is wished of them.
"""

from __future__ import annotations

import numpy as np

from tests.ops.harness.values import DTYPES, FLOATS, INTEGERS

#: Ranks that programs have.
MOST = 6
_NAN = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "f64": 0x7FF8 << 48}
_INF = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0 << 48}
_PARTS = {"c64": "f32", "c128": "f64"}
_WHOLE = frozenset({"least", "greatest", "0", "-1"})
#: Kind of values -> those of the edge that it may have, of floats and of integers.
_OF_FLOATS = {
    "any": frozenset({"-0", "subnormal", "inf", "NaN"}),
    "bits": frozenset({"-0", "subnormal", "inf", "NaN", "NaN with content"}),
    "finite": frozenset({"-0", "subnormal"}),
    "special": frozenset({"-0", "subnormal", "inf", "NaN"}),
}
_OF_INTEGERS = {"small": frozenset({"0"}), "tame": frozenset({"0", "-1"}), "divisor": frozenset({"greatest"})}


def rank(wish: str, drawn: int, low: int) -> int:
    """A rank of at least ``low`` in which the wish can come true."""
    if wish.startswith("rank "):
        return max(int(wish[5:]), low)
    if wish.endswith(" none"):
        return low
    if wish.endswith((" out of order", " above 0")):
        return max(drawn, 2)
    if wish.endswith((" in order", " negative", " zero", " one", " more")) or wish in (
        "empty",
        "one element",
    ):
        return max(drawn, 1)
    return drawn


def sizes(wish: str, drawn: list[int], rng: np.random.Generator) -> list[int]:
    """Sizes of a shape that are none, one, or not none, where that is wished."""
    if wish == "empty" and drawn:
        place = int(rng.integers(len(drawn)))
        return [*drawn[:place], 0, *drawn[place + 1 :]]
    if wish == "one element":
        return [1] * len(drawn)
    if wish.startswith("values "):
        return [max(size, 1) for size in drawn]
    return drawn


def number(wished: str, low: int, high: int) -> tuple[int, int]:
    """Narrower bounds of a number whose class is wished, where any are in it."""
    bounds = {
        "negative": (low, min(high, -1)),
        "zero": (0, 0),
        "0": (0, 0),
        "one": (1, 1),
        "more": (max(low, 2), high),
        "above 0": (max(low, 1), high),
    }.get(wished, (low, high))
    return bounds if low <= bounds[0] <= bounds[1] <= high else (low, high)


def planted(wish: str, dtype: str, kind: str, content: bytes, rng: np.random.Generator) -> bytes:
    """``content`` with the wished value of the edge at one place, where values of the kind may have it."""
    part = _PARTS.get(dtype, dtype)
    value = wish.removeprefix("values ")
    allowed = _OF_INTEGERS.get(kind, _WHOLE) if part in INTEGERS else _OF_FLOATS.get(kind, frozenset[str]())
    if not content or part not in (*INTEGERS, *FLOATS) or value not in allowed:
        return content
    values = np.frombuffer(content, DTYPES[part][1]).copy()
    values[int(rng.integers(values.size))] = _edge(value, part, rng)
    return values.tobytes()


def _edge(value: str, dtype: str, rng: np.random.Generator) -> int:
    """A number, or the bits of a float."""
    if dtype in INTEGERS:
        limits = np.iinfo(DTYPES[dtype][1])
        return {"least": int(limits.min), "greatest": int(limits.max), "0": 0, "-1": -1}[value]
    sign = (int(rng.integers(2)) if value != "-0" else 1) << (8 * np.dtype(DTYPES[dtype][1]).itemsize - 1)
    bits = {
        "-0": 0,
        "subnormal": int(rng.integers(1, 9)),
        "inf": _INF[dtype],
        "NaN": _NAN[dtype],
        "NaN with content": _INF[dtype] + int(rng.integers(1, 64)),
    }[value]
    return bits if value == "NaN" else bits | sign
