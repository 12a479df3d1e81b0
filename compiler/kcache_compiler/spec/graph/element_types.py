"""Properties of element types."""

from __future__ import annotations

#: (Bits of precision, bits of exponent) of floats.
_FLOATS = {"f16": (11, 5), "bf16": (8, 8), "f32": (24, 8), "f64": (53, 11)}
_INTEGERS = frozenset({"i1", *(f"{sign}{width}" for sign in ("i", "ui") for width in (2, 4, 8, 16, 32, 64))})


def is_float(element: str) -> bool:
    """Return whether an element type is a float with IEEE arithmetic."""
    return element in _FLOATS


def is_integer(element: str) -> bool:
    """Return whether an element type is an integer or boolean."""
    return element in _INTEGERS


def is_complex(element: str) -> bool:
    """Return whether an element type is complex."""
    return element in ("c64", "c128")


def limits_of(element: str) -> tuple[int, int]:
    """Return the least and greatest value of an integer type."""
    if element == "i1":
        return 0, 1
    width = int(element.lstrip("ui"))
    return (0, (1 << width) - 1) if element.startswith("u") else (-(1 << width - 1), (1 << width - 1) - 1)


def lossless(source: str, target: str) -> bool:
    """Return whether a conversion keeps every value, apart from NaN payloads."""
    if source == target:
        return True
    if source in _FLOATS and target in _FLOATS:
        return all(a <= b for a, b in zip(_FLOATS[source], _FLOATS[target], strict=True))
    if source in _INTEGERS and target in _INTEGERS and target != "i1":
        (low, high), (least, greatest) = limits_of(source), limits_of(target)
        return least <= low and high <= greatest
    return False
