"""bf16 as i16 in unoptimized LLVM IR.

LLVM promotes a bf16 that is live across blocks to f32, and converts it back by a function that no library has
(``__truncsfbf2``). Optimized IR has no such values; in unoptimized IR they are replaced by i16. Optimization
makes conversions of integers to bf16, for which LLVM calls the function too.
"""

from __future__ import annotations

import re

#: Instructions that only move values, and constants; a text with other uses of bf16 is not changed.
_MOVES = re.compile(
    r"\s*(?:%\S+ = )?"
    r"(?:load|store|bitcast|phi|select|getelementptr|alloca|insertelement|extractelement|shufflevector)\b"
    r"|@\S+ = (?:\w+ )*constant\b"
)
#: A conversion of integers.
_CONVERSION = re.compile(
    r"^  %(?P<name>[\w.]+) = (?P<op>(?:sitofp|uitofp)(?: nneg)?) (?P<from>\S+(?: x i\d+>)? %\S+) "
    r"to (?:<(?P<lanes>\d+) x )?bfloat>?$",
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
    """The text with conversions of integers to f32, rounded to bf16 by their bits, instead of to bf16.

    MLIR and LLVM have made one conversion of these two.
    """

    def rounded(match: re.Match[str]) -> str:
        name, lanes = match["name"], match["lanes"]

        def kind(element: str) -> str:
            return f"<{lanes} x {element}>" if lanes else element

        def constant(number: int) -> str:
            return f"splat (i32 {number})" if lanes else str(number)

        value, wide = f"%bf16.{name}", kind("i32")
        lines = [
            f"{value}.float = {match['op']} {match['from']} to {kind('float')}",
            f"{value}.bits = bitcast {kind('float')} {value}.float to {wide}",
            f"{value}.above = lshr {wide} {value}.bits, {constant(16)}",
            f"{value}.odd = and {wide} {value}.above, {constant(1)}",
            f"{value}.half = add {wide} {value}.odd, {constant(0x7FFF)}",
            f"{value}.sum = add {wide} {value}.bits, {value}.half",
            f"{value}.high = lshr {wide} {value}.sum, {constant(16)}",
            f"{value}.short = trunc {wide} {value}.high to {kind('i16')}",
            f"%{name} = bitcast {kind('i16')} {value}.short to {kind('bfloat')}",
        ]
        return "\n".join(f"  {line}" for line in lines)

    return as_integers(_CONVERSION.sub(rounded, llvm_ir))
