"""bf16 as what it is in memory, in LLVM IR that is not optimized.

LLVM keeps a bf16 that lives from one block to the next as f32, and comes back by a conversion that is in no
library (``__truncsfbf2``). Optimization leaves no such value; without it they are written as i16.
"""

from __future__ import annotations

import re

#: What moves values and computes nothing, apart from which a text stays as it is.
_MOVES = re.compile(
    r"\s*(?:%\S+ = )?"
    r"(?:load|store|bitcast|phi|select|getelementptr|alloca|insertelement|extractelement|shufflevector)\b"
)
_CONSTANT = re.compile(r"\b0xR([0-9A-Fa-f]{4})\b")


def as_integers(llvm_ir: str) -> str:
    """The text with i16 for bf16, where nothing computes with it."""
    lines = [line for line in llvm_ir.splitlines() if "bfloat" in line]
    if not lines or not all(map(_MOVES.match, lines)):
        return llvm_ir
    return _CONSTANT.sub(lambda match: str(int(match[1], 16)), llvm_ir).replace("bfloat", "i16")
