"""What the codes of small elements mean.

Floats are those of the StableHLO specification: a sign bit (but ``f8E8M0FNU``), exponent and mantissa, and
what their names say: ``FN`` has no infinity, ``UZ`` one zero and one NaN, ``B11`` another bias.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A float of ``bits`` bits. ``largest``, ``infinity`` and ``nan`` are codes without the sign.

    ``unsigned_zero``: the code of -0 is the only NaN. Where there is neither, NaN becomes zero.
    """

    name: str
    bits: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    unsigned_zero: bool = False

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.bits - 1)

    @property
    def first_nan(self) -> int:
        """The least code without sign that is no number and no infinity."""
        return self.largest + (1 if self.infinity is None else 2)


FORMATS = {
    form.name: form
    for form in (
        Format("f8E3M4", 8, 4, 3, 0x6F, 0x70, 0x78),
        Format("f8E4M3", 8, 3, 7, 0x77, 0x78, 0x7C),
        Format("f8E4M3FN", 8, 3, 7, 0x7E, None, 0x7F),
        Format("f8E4M3FNUZ", 8, 3, 8, 0x7F, unsigned_zero=True),
        Format("f8E4M3B11FNUZ", 8, 3, 11, 0x7F, unsigned_zero=True),
        Format("f8E5M2", 8, 2, 15, 0x7B, 0x7C, 0x7E),
        Format("f8E5M2FNUZ", 8, 2, 16, 0x7F, unsigned_zero=True),
        Format("f6E2M3FN", 6, 3, 1, 0x1F),
        Format("f6E3M2FN", 6, 2, 3, 0x1F),
        Format("f4E2M1FN", 4, 1, 1, 0x7),
    )
}
#: Powers of two and NaN, without sign.
POWERS = "f8E8M0FNU"
FLOATS = (*FORMATS, POWERS)
#: name -> bits
INTEGERS = {"i2": 2, "i4": 4, "ui2": 2, "ui4": 4}
#: A text that has none of this names no small element.
MENTION = re.compile(r"\b(?:\d+x|\?x)*(?:u?i[24]|f[468]E\d\w*)\b")


def width(element: str) -> int:
    """The bits of a small element."""
    if element in INTEGERS:
        return INTEGERS[element]
    return FORMATS[element].bits if element in FORMATS else 8


def carrier(element: str) -> str:
    """The type of the bytes that hold a small element."""
    return "ui8" if element.startswith("ui") else "i8"


def value_of(code: int, element: str) -> float:
    """The number that a code is; NaN for those that are none."""
    if element == POWERS:
        return float("nan") if code == 0xFF else 2.0 ** (code - 127)
    form = FORMATS[element]
    size = code & (form.sign - 1)
    if (form.unsigned_zero and code == form.sign) or (form.nan is not None and size >= form.first_nan):
        return float("nan")
    if form.infinity is not None and size == form.infinity:
        number = float("inf")
    else:
        exponent, rest = size >> form.mantissa, size & ((1 << form.mantissa) - 1)
        rest += (1 << form.mantissa) if exponent else 0
        number = rest * 2.0 ** (max(exponent, 1) - form.bias - form.mantissa)
    return -number if code & form.sign else number


def code_of(number: float, element: str) -> int:
    """The code of a number that the element has, up to how exactly it was printed."""
    codes = range(1 << width(element))
    known = [code for code in codes if value_of(code, element) == value_of(code, element)]
    negative = str(number).startswith("-")
    same = [code for code in known if str(value_of(code, element)).startswith("-") == negative]
    return min(same or known, key=lambda code: abs(value_of(code, element) - number))
