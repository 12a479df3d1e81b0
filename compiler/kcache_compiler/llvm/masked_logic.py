"""Keeps LLVM 22 from merging a select into a logical instruction of AVX-512, which it does incorrectly.

``vpternlogd`` and ``vpternlogq`` compute any function of three operands' bits, and can leave elements as they
were by a mask. Where one operand is in memory, as constants are, and a select's other value is an operand
that is not the first, LLVM moves that to the front and permutes the function's table by the inverse of the
permutation that it applied to the operands: the result is of another function. It may later load the operand
in memory before a loop, so that the instruction does not show where the operand came from.

This is LLVM's issue 157929. Pull request 209782, which was merged in July 2026, corrects it: it exchanges the
bodies of ``VPTERNLOG231_imm8`` and ``VPTERNLOG312_imm8``. LLVM 24 is the first version that begins with it; a
backport to LLVM 23 was requested. With a version that has it, nothing of this module is needed.
"""

from __future__ import annotations

import re

from kcache_compiler.llvm.target import Target

#: The instruction with a mask: which of them are incorrect, it does not show.
_MERGED = re.compile(r"^\s*vpternlog[dq]\s[^\n]*\{%k[0-7]\}$", re.MULTILINE)
_SELECT = re.compile(
    r"^(?P<begin>  %(?P<name>[\w.]+) = select (?:[a-z]+ )*(?P<mask><(?P<lanes>\d+) x i1> %[\w.]+), )"
    r"(?P<type><\d+ x (?P<element>i32|i64|float|double)>) (?P<true>[^\n]*?), "
    r"(?P=type) (?P<false>[^\n]*?)(?P<end>(?:, ![^\n]*)?)$",
    re.MULTILINE,
)
#: Features that the instruction is part of, or that imply it.
_AVX512 = ("avx512", "avx10")
#: An intrinsic that is one instruction of AVX-512: LLVM ends the process if it may not use that.
_CALLED = "@llvm.x86.avx512"
_DEFINED = re.compile(r"^(?P<head>define [^\n]*?)(?P<end>(?: ![\w.]+ !\d+)* \{)$", re.MULTILINE)
#: Element -> the float of its width, and its name in intrinsics.
_FLOATS = {
    "i32": ("float", "f32"),
    "float": ("float", "f32"),
    "i64": ("double", "f64"),
    "double": ("double", "f64"),
}


def may_be_incorrect(assembly: str) -> bool:
    """Whether ``assembly`` has the instruction in a form that LLVM may have selected incorrectly."""
    return "vpternlog" in assembly and _MERGED.search(assembly) is not None


def without_merged_selects(text: str) -> str:
    """LLVM IR in which values that vectors are selected from are opaque, so that no select is merged."""
    declarations: set[str] = set()

    def opaque(match: re.Match[str]) -> str:
        """Return a select whose operands LLVM cannot see through: each goes through an arithmetic fence."""
        lines: list[str] = []
        vector, element, name = match["type"], match["element"], match["name"]
        float_name, suffix = _FLOATS[element]
        lanes = match["lanes"]
        floats = f"<{lanes} x {float_name}>"
        intrinsic = f"@llvm.arithmetic.fence.v{lanes}{suffix}"
        values: list[str] = []
        for side in ("true", "false"):
            value = match[side]
            if not value.startswith("%"):  # a constant
                values.append(value)
                continue
            fenced = f"%fence.{name}.{side}"
            declarations.add(f"declare {floats} {intrinsic}({floats})")
            if element == float_name:
                lines.append(f"  {fenced} = call {floats} {intrinsic}({floats} {value})")
            else:
                lines += [
                    f"  {fenced}.in = bitcast {vector} {value} to {floats}",
                    f"  {fenced}.out = call {floats} {intrinsic}({floats} {fenced}.in)",
                    f"  {fenced} = bitcast {floats} {fenced}.out to {vector}",
                ]
            values.append(fenced)
        lines.append(f"{match['begin']}{vector} {values[0]}, {vector} {values[1]}{match['end']}")
        return "\n".join(lines)

    rewritten = _SELECT.sub(opaque, text)
    return "\n".join([rewritten.rstrip("\n"), "", *sorted(declarations), ""])


def without_avx512(text: str, target: Target) -> str | None:
    """LLVM IR whose functions do not use AVX-512, of which the instruction is; None where they call that."""
    if _CALLED in text:
        return None
    features = ",".join(f"+{name}" for name in target.features if not name.startswith(_AVX512))
    return _DEFINED.sub(rf'\g<head> "target-features"="{features}"\g<end>', text)
