"""Checks on the bytes of a program that run before a native parser reads them."""

from __future__ import annotations

import re

import numpy as np

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.limits import Limits, check

BYTECODE_MAGIC = b"ML\xefR"
#: The first field of a serialized ``kcache.v1.Graph``: its format.
GRAPH_MAGIC = b"\n\x0fkcache.graph.v1"

_STRINGS_AND_COMMENTS = re.compile(rb'"(?:[^"\\\n]|\\.)*"|//[^\n]*')
#: A result and its operation, but not the binding of a region argument (``%i = %0``). Strings are ``"`` here.
_OPERATION = re.compile(rb'%[^\s=,()]+\s*=\s*["a-z]')
#: Pattern that ends at a value with which the native parser or verifier crashes -> the rule it violates.
_FATAL = (
    (
        re.compile(rb"\bbroadcast_dimensions\s*=\s*array<\s*i64\s*:[\s\d,]*-"),
        "broadcast_dimensions holds a negative axis: axes start at 0",
    ),
    (re.compile(rb"[{<,(]\s*k\s*=\s*-"), "k is negative: chlo.top_k returns the k largest elements"),
    (
        re.compile(rb"\[(?=[^\[\]]*\b[bfio]\b)[\sbfio?,\d]*\d{4}"),
        "the dimension numbers of a convolution name an axis above every supported rank",
    ),
)
_ARROWS = (b"->", b"<=", b">=")
_NOT_BRACKETS = bytes(b for b in range(256) if b not in b"()[]{}<>")
_NESTING_CHANGE = np.zeros(256, np.int8)
for _opening, _closing in (b"()", b"[]", b"{}", b"<>"):
    _NESTING_CHANGE[_opening], _NESTING_CHANGE[_closing] = 1, -1


def is_bytecode(program: bytes) -> bool:
    """Return whether the bytes start like MLIR bytecode, as portable artifacts do too."""
    return program.startswith(BYTECODE_MAGIC)


def is_portable_artifact(program: bytes) -> bool:
    """Return whether bytecode comes from StableHLO's serializer: its producer is ``StableHLO_v<version>``."""
    return is_bytecode(program) and program[4:64].find(b"StableHLO_v") >= 0


def bare_text(text: bytes) -> bytes:
    """Return a text without comments, with ``"`` in place of every string."""
    return _STRINGS_AND_COMMENTS.sub(lambda match: match[0][:1].replace(b"/", b""), text)


def operation_count(bare: bytes) -> int:
    """Return the number of operations with results in a bare text, without parsing it."""
    return sum(1 for _ in _OPERATION.finditer(bare))


def bracket_depth(bare: bytes) -> int:
    """Return the deepest nesting of brackets in a bare text.

    An upper bound of the parser's recursion on every prefix that it accepts: unmatched closing brackets do
    not lower it, because the parser stops at the first of them.
    """
    for arrow in _ARROWS:
        bare = bare.replace(arrow, b" ")
    brackets = np.frombuffer(bare.translate(None, _NOT_BRACKETS), np.uint8)
    if brackets.size == 0:
        return 0
    level = np.cumsum(_NESTING_CHANGE[brackets], dtype=np.int64)
    floor = np.minimum(np.minimum.accumulate(level), 0)
    return int((level - floor).max())


def _reject_unclosed_resources(bare: bytes) -> None:
    """Raise for a text that ends inside its resource section: the native parser crashes on it."""
    start = bare.rfind(b"{-#")
    if start >= 0 and bare.find(b"#-}", start) < 0:
        line = bare.count(b"\n", 0, start) + 1
        raise InvalidProgram(f"line {line}: the resource section that starts here is not closed by #-}}")


def _reject_fatal_values(bare: bytes) -> None:
    """Raise for values with which the native parser or verifier crashes."""
    for pattern, rule in _FATAL:
        match = pattern.search(bare)
        if match is not None:
            line = bare.count(b"\n", 0, match.end()) + 1
            raise InvalidProgram(f"line {line}: {rule}")


def check_bytes(program: bytes, limits: Limits) -> None:
    """Raise for bytes that must not reach a parser: too large, empty, not text, nested too deeply."""
    check("program size in bytes", len(program), limits.program_bytes)
    if not program.strip():
        raise InvalidProgram("the program is empty")
    if is_bytecode(program):
        return
    if program.startswith(GRAPH_MAGIC):
        raise InvalidProgram("the program is a kcache.v1.Graph: send it as a program of format 'graph'")
    try:
        program.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidProgram(
            f"the program is neither MLIR bytecode (which starts with {BYTECODE_MAGIC!r}) nor UTF-8 text: "
            f"byte {error.start} is {program[error.start]:#04x}"
        ) from None
    if b"\0" in program:
        raise InvalidProgram(f"the program text contains a NUL at byte {program.index(0)}")
    bare = bare_text(program)
    _reject_unclosed_resources(bare)
    _reject_fatal_values(bare)
    check("nesting of brackets", bracket_depth(bare), limits.bracket_depth)
    check("number of operations", operation_count(bare), limits.operations)
