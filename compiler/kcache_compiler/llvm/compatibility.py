"""The version compatibility layer: translates text printed by LLVM 24 for the parser of LLVM 22.

LLVM 24 prints float literals that LLVM 22 rejects: decimals that are exact only in their own type
(``float 1.000000e-01``), ``+inf``, ``-qnan``, ``+nan(0x1)``, ``+snan(0x1)``, ``f0x7F7FFFFF``. Each literal
has the nearest type to its left on its line and is replaced by LLVM 22's hexadecimal form of the same bits.
Attributes of declared intrinsics are dropped: LLVM infers them, and the newer version has names that the
older one does not know.

Unknown syntax is left unchanged, so that the parser of LLVM 22 rejects it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction

from kcache_compiler.errors import CompileFailed


@dataclass(frozen=True)
class FloatFormat:
    """An IEEE interchange format and the prefix of its literals in LLVM 22."""

    exponent_bits: int
    mantissa_bits: int
    prefix: str

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits


FORMATS = {
    "half": FloatFormat(5, 10, "0xH"),
    "bfloat": FloatFormat(8, 7, "0xR"),
    "float": FloatFormat(8, 23, "0x"),
    "double": FloatFormat(11, 52, "0x"),
}

_TOKEN = re.compile(
    r"""
    (?P<skip> c?"[^"]*" | [%@!\#$](?:"[^"]*"|[-\w.$]+) | ;.* )
  | (?P<type> \b(?:half|bfloat|float|double)\b )
  | (?P<literal>
        [-+]?\d+\.\d+(?:[eE][-+]?\d+)?
      | [-+](?:inf|qnan|s?nan\(0x[0-9A-Fa-f]+\))
      | f0x[0-9A-Fa-f]+
    ) (?![\w.])
    """,
    re.VERBOSE,
)
#: A substring of every literal, which few lines contain.
_LITERAL = re.compile(r"\d\.\d|[-+](?:inf|s?q?nan)|f0x")
_INTRINSIC = re.compile(r"^(declare .*@llvm\..*\)) #\d+$", re.MULTILINE)
_GROUP = re.compile(r"^attributes (#\d+) = .*\n", re.MULTILINE)


def downgrade(text: str) -> str:
    """LLVM 24 text as LLVM 22 text with the same meaning; raises ``CompileFailed`` for a stray literal."""
    text = _INTRINSIC.sub(r"\1", text)
    used = set(re.findall(r"#\d+", _GROUP.sub("", text)))
    text = _GROUP.sub(lambda group: group[0] if group[1] in used else "", text)
    return "\n".join(_line(line) if _has_literal(line) else line for line in text.split("\n"))


def _has_literal(line: str) -> bool:
    """Whether a line may contain a literal; substring tests reject most lines faster than the expression."""
    may = "." in line or "f0x" in line or "inf" in line or "nan" in line
    return may and _LITERAL.search(line) is not None


def _line(line: str) -> str:
    """One line with its float literals rewritten."""
    kind: str | None = None

    def rewrite(token: re.Match[str]) -> str:
        nonlocal kind
        if token["type"]:
            kind = token["type"]
        if token["literal"]:
            if kind is None:
                raise CompileFailed("downgrade", f"float literal without a type: {line.strip()}")
            return _respelled(token["literal"], kind)
        return token[0]

    return _TOKEN.sub(rewrite, line)


@functools.lru_cache(maxsize=4096)
def _respelled(literal: str, kind: str) -> str:
    return spell(bits_of(literal, FORMATS[kind]), FORMATS[kind])


def bits_of(literal: str, form: FloatFormat) -> int:
    """The bits of an LLVM 24 literal in its own format."""
    if literal.startswith("f0x"):
        return int(literal[3:], 16)
    sign = int(literal.startswith("-")) << (form.width - 1)
    body = literal.lstrip("+-")
    infinity = ((1 << form.exponent_bits) - 1) << form.mantissa_bits
    quiet = 1 << (form.mantissa_bits - 1)
    if body == "inf":
        return sign | infinity
    if body == "qnan":
        return sign | infinity | quiet
    if "nan" in body:
        payload = int(body[body.index("(") + 1 : -1], 16)
        return sign | infinity | payload | (0 if body.startswith("snan") else quiet)
    return sign | _nearest(Fraction(body), form)


def _nearest(number: Fraction, form: FloatFormat) -> int:
    """The bits of the value nearest to ``number`` (not negative), ties to even."""
    if number == 0:
        return 0
    bias = (1 << (form.exponent_bits - 1)) - 1
    exponent = number.numerator.bit_length() - number.denominator.bit_length()
    exponent += int(number >= Fraction(2) ** exponent) - 1 if number < Fraction(2) ** (exponent + 1) else 1
    exponent = max(exponent, 1 - bias)
    scaled = number / Fraction(2) ** (exponent - form.mantissa_bits)
    mantissa = round(scaled)
    return mantissa + ((exponent + bias - 1) << form.mantissa_bits)


def spell(bits: int, form: FloatFormat) -> str:
    """LLVM 22's hexadecimal literal; a float is printed as the double of the same value."""
    if form.prefix != "0x":
        return f"{form.prefix}{bits:04X}"
    if form.width == 64:
        return f"0x{bits:016X}"
    return f"0x{_widen(bits, form):016X}"


def _widen(bits: int, form: FloatFormat) -> int:
    sign = bits >> 31 << 63
    exponent = (bits >> 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    if exponent == 0xFF:
        return sign | 0x7FF << 52 | mantissa << 29
    if exponent == 0:
        if mantissa == 0:
            return sign
        shift = 24 - mantissa.bit_length()
        exponent = 1 - shift
        mantissa = (mantissa << shift) & 0x7FFFFF
    return sign | (exponent + 896) << 52 | mantissa << 29
