"""bf16 as i16 in unoptimized LLVM IR.

LLVM promotes a bf16 that is live across blocks to f32, and converts it back by a function that no library has
(``__truncsfbf2``). Optimized IR has no such values; in unoptimized IR they are replaced by i16. Optimization
makes conversions of truth values to bf16, for which LLVM calls the function too.
"""

from __future__ import annotations

import re

#: Instructions that only move values, and constants; a text with other uses of bf16 is not changed.
_MOVES = re.compile(
    r"\s*(?:%\S+ = )?"
    r"(?:load|store|bitcast|phi|select|getelementptr|alloca|insertelement|extractelement|shufflevector)\b"
    r"|@\S+ = (?:\w+ )*constant\b"
)
#: 1.0 where a truth value is true, 0.0 elsewhere.
_TRUTH = re.compile(
    r"^(?P<to>\s*%\S+ = )uitofp (?P<from>(?P<vector><\d+ x )?i1>? %\S+) to (?P<type>(?:<\d+ x )?bfloat>?)",
    re.MULTILINE,
)
#: The function that no library has.
MISSING = "__truncsfbf2"
_CONSTANT = re.compile(r"\b0xR([0-9A-Fa-f]{4})\b")


def as_integers(llvm_ir: str) -> str:
    """The text with i16 instead of bf16, if no instruction computes with bf16."""
    lines = [line for line in llvm_ir.splitlines() if "bfloat" in line]
    if not lines or not all(map(_MOVES.match, lines)):
        return llvm_ir
    return _CONSTANT.sub(lambda match: str(int(match[1], 16)), llvm_ir).replace("bfloat", "i16")


def without_conversions(llvm_ir: str) -> str:
    """The text with selects of i16 instead of conversions of truth values to bf16."""

    def selected(match: re.Match[str]) -> str:
        kind = match["type"]
        one = "splat (bfloat 0xR3F80)" if match["vector"] else "0xR3F80"
        zero = "zeroinitializer" if match["vector"] else "0xR0000"
        return f"{match['to']}select {match['from']}, {kind} {one}, {kind} {zero}"

    return as_integers(_TRUTH.sub(selected, llvm_ir))
