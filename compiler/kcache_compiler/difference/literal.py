"""Inline constants of specs as decimals."""

from __future__ import annotations

import struct

#: element -> (struct code, bytes of a part, parts of an element)
_CODES: dict[str, tuple[str, int, int]] = {
    "i1": ("?", 1, 1),
    "i8": ("b", 1, 1),
    "i16": ("h", 2, 1),
    "i32": ("i", 4, 1),
    "i64": ("q", 8, 1),
    "ui8": ("B", 1, 1),
    "ui16": ("H", 2, 1),
    "ui32": ("I", 4, 1),
    "ui64": ("Q", 8, 1),
    "f16": ("e", 2, 1),
    "bf16": ("H", 2, 1),
    "f32": ("f", 4, 1),
    "f64": ("d", 8, 1),
    "c64": ("f", 4, 2),
    "c128": ("d", 8, 2),
    "index": ("q", 8, 1),
}
#: Most elements of an array that are printed.
_MAX_SHOWN = 6


def numbers(element: str, content: str, digits: int = 17) -> tuple[str, ...] | None:
    """Return the elements of a constant as short decimals of at most ``digits`` digits.

    ``None`` if the content is no constant of the element type.
    """
    code, width, parts = _CODES.get(element, ("", 0, 0))
    try:
        data = bytes.fromhex(content)
    except ValueError:
        return None
    if not code or not data or len(data) % (width * parts):
        return None
    values = [_number(element, code, data[i : i + width], digits) for i in range(0, len(data), width)]
    if parts == 1:
        return tuple(values)
    return tuple(f"({real}, {imag})" for real, imag in zip(values[::2], values[1::2], strict=True))


def literal(element: str, content: str) -> str:
    """Return a constant as text: ``0.5``, or ``[1, 2, 3, ... 16 in all]``."""
    if content.startswith("="):
        return content[1:]
    values = numbers(element, content)
    if values is None:
        return content if len(content) <= 40 else f"{content[:40]}..."
    if len(values) == 1:
        return values[0]
    shown = ", ".join(values[:_MAX_SHOWN])
    return f"[{shown}]" if len(values) <= _MAX_SHOWN else f"[{shown}, ... {len(values)} in all]"


def _number(element: str, code: str, data: bytes, digits: int) -> str:
    if element == "bf16":
        (value,) = struct.unpack("<f", b"\0\0" + data)
    else:
        (value,) = struct.unpack(f"<{code}", data)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    return _decimal(value, "f" if element == "bf16" else code, digits)


def _decimal(value: float, code: str, max_digits: int) -> str:
    """Return the shortest decimal of at most ``max_digits`` digits that reads back as the same number."""
    if max_digits < 17:
        return f"{value:.{max_digits}g}"
    for digits in range(1, 17):
        text = f"{value:.{digits}g}"
        try:
            if struct.pack(f"<{code}", float(text)) == struct.pack(f"<{code}", value):
                return text
        except OverflowError:
            continue
    return repr(value)
