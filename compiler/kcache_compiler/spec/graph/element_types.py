"""What there is to know about element types."""

from __future__ import annotations

#: float -> (bits of precision, bits of exponent)
_FLOATS = {"f16": (11, 5), "bf16": (8, 8), "f32": (24, 8), "f64": (53, 11)}
_INTEGERS = frozenset({"i1", *(f"{sign}{width}" for sign in ("i", "ui") for width in (2, 4, 8, 16, 32, 64))})


def is_float(element: str) -> bool:
    """Whether the element is a float whose arithmetic is IEEE's."""
    return element in _FLOATS


def is_integer(element: str) -> bool:
    """Whether the element is an integer, booleans included."""
    return element in _INTEGERS


def is_complex(element: str) -> bool:
    """Whether the element is complex."""
    return element in ("c64", "c128")


def limits_of(element: str) -> tuple[int, int]:
    """Return the least and greatest value of an integer type."""
    if element == "i1":
        return 0, 1
    width = int(element.lstrip("ui"))
    return (0, (1 << width) - 1) if element.startswith("u") else (-(1 << width - 1), (1 << width - 1) - 1)


def lossless(source: str, target: str) -> bool:
    """Whether converting ``source`` to ``target`` keeps every value (but which NaN a NaN is)."""
    if source == target:
        return True
    if source in _FLOATS and target in _FLOATS:
        return all(a <= b for a, b in zip(_FLOATS[source], _FLOATS[target], strict=True))
    if source in _INTEGERS and target in _INTEGERS and target != "i1":
        (low, high), (least, greatest) = limits_of(source), limits_of(target)
        return least <= low and high <= greatest
    return False
