"""Constants of small elements as the bytes that hold them."""

from __future__ import annotations

import re

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.narrow_types.formats import INTEGERS, carrier, code_of, width
from kcache_compiler.passes.narrow_types.values import held, small

_RAW = re.compile(r'dense<"0x([0-9A-Fa-f]*)">')
_DENSE = re.compile(r"dense<(.*)> : [^>]*>\Z", re.DOTALL)
_TOKEN = re.compile(r"0x[0-9A-Fa-f]+|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def constant_bytes(op: mlir.Op) -> mlir.Value:
    """The constant ``op`` as bytes, at the current point."""
    kind = op.results[0].type
    element = small(kind)
    codes = _codes(str(op.attributes["value"]), element)
    if carrier(element) == "i8" and element in INTEGERS:
        top = 1 << (width(element) - 1)
        codes = [((code ^ top) - top) & 0xFF for code in codes]
    if not codes:
        content = ""
    elif len(codes) == 1:
        signed = codes[0] - 256 if codes[0] > 127 and carrier(element) == "i8" else codes[0]
        content = str(signed)
    else:
        content = f'"0x{bytes(codes).hex().upper()}"'
    literal = mlir.attribute(f"dense<{content}> : {held(kind)}")
    return mlir.value("stablehlo.constant", (), held(kind), value=literal)


def _codes(literal: str, element: str) -> list[int]:
    raw = _RAW.match(literal)
    if raw:
        mask = (1 << width(element)) - 1
        return [byte & mask for byte in bytes.fromhex(raw[1])]
    match = _DENSE.match(literal)
    if match is None:
        raise InvalidProgram(f"cannot read the constant {literal[:200]}")
    known: dict[str, int] = {}
    return [known.setdefault(token, _code(token, element)) for token in _TOKEN.findall(match[1])]


def _code(token: str, element: str) -> int:
    mask = (1 << width(element)) - 1
    if token.startswith("0x") or element in INTEGERS:
        return int(token, 0) & mask
    return code_of(float(token), element)
