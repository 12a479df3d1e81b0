"""What can be said of a program's bytes before a native parser sees them."""

from __future__ import annotations

import re

import numpy as np

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.limits import Limits, check

BYTECODE_MAGIC = b"ML\xefR"
#: The first field of a serialized ``kcache.v1.Graph``: its format.
GRAPH_MAGIC = b"\n\x0fkcache.graph.v1"

_STRINGS_AND_COMMENTS = re.compile(rb'"(?:[^"\\\n]|\\.)*"|//[^\n]*')
#: A result with its operation; what a region binds (``%i = %0``) is not one. Strings are ``"`` here.
_OPERATION = re.compile(rb'%[^\s=,()]+\s*=\s*["a-z]')
#: Up to a number with which the native parser or verifier ends the process, and what it breaks.
_FATAL = (
    (
        re.compile(rb"\bbroadcast_dimensions\s*=\s*array<\s*i64\s*:[\s\d,]*-"),
        "broadcast_dimensions has a number below 0: axes are counted from 0",
    ),
    (re.compile(rb"[{<,(]\s*k\s*=\s*-"), "k is below 0: chlo.top_k takes the k largest elements"),
    (
        re.compile(rb"\[(?=[^\[\]]*\b[bfio]\b)[\sbfio?,\d]*\d{4}"),
        "the dimension numbers of a convolution name an axis beyond all ranks",
    ),
)
_ARROWS = (b"->", b"<=", b">=")
_NOT_BRACKETS = bytes(b for b in range(256) if b not in b"()[]{}<>")
_STEP = np.zeros(256, np.int8)
for _open, _close in (b"()", b"[]", b"{}", b"<>"):
    _STEP[_open], _STEP[_close] = 1, -1


def is_bytecode(program: bytes) -> bool:
    """Whether the bytes start like MLIR bytecode (portable artifacts do too)."""
    return program.startswith(BYTECODE_MAGIC)


def is_portable_artifact(program: bytes) -> bool:
    """Whether bytecode was made by StableHLO's serializer: its producer is ``StableHLO_v<version>``."""
    return is_bytecode(program) and program[4:64].find(b"StableHLO_v") >= 0


def bare_text(text: bytes) -> bytes:
    """A text without comments, and with ``"`` for every string."""
    return _STRINGS_AND_COMMENTS.sub(lambda match: match[0][:1].replace(b"/", b""), text)


def operation_count(bare: bytes) -> int:
    """Operations with results in a bare text: the parser takes seconds for a million, this does not."""
    return sum(1 for _ in _OPERATION.finditer(bare))


def bracket_depth(bare: bytes) -> int:
    """The deepest nesting of brackets in a bare text.

    An upper bound of the parser's recursion on every prefix that it accepts: closers that match
    nothing do not lower it, because the parser stops at the first of them.
    """
    for arrow in _ARROWS:
        bare = bare.replace(arrow, b" ")
    brackets = np.frombuffer(bare.translate(None, _NOT_BRACKETS), np.uint8)
    if brackets.size == 0:
        return 0
    level = np.cumsum(_STEP[brackets], dtype=np.int64)
    floor = np.minimum(np.minimum.accumulate(level), 0)
    return int((level - floor).max())


def _refuse_unclosed_resources(bare: bytes) -> None:
    """Raise for a text that ends inside its resources, as a truncated one does: the native parser crashes."""
    start = bare.rfind(b"{-#")
    if start >= 0 and bare.find(b"#-}", start) < 0:
        line = bare.count(b"\n", 0, start) + 1
        raise InvalidProgram(
            f"line {line}: the text ends inside the resources that begin here: no #-}} closes them"
        )


def _refuse_fatal_numbers(bare: bytes) -> None:
    """Raise for numbers with which a native parser or verifier would crash."""
    for pattern, broken in _FATAL:
        found = pattern.search(bare)
        if found is not None:
            line = bare.count(b"\n", 0, found.end()) + 1
            raise InvalidProgram(f"line {line}: {broken}")


def check_bytes(program: bytes, limits: Limits) -> None:
    """Raise on what no parser should be given: too large, empty, not text, too deep."""
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
        raise InvalidProgram(f"the program text holds a NUL at byte {program.index(0)}")
    bare = bare_text(program)
    _refuse_unclosed_resources(bare)
    _refuse_fatal_numbers(bare)
    check("nesting of brackets", bracket_depth(bare), limits.bracket_depth)
    check("number of operations", operation_count(bare), limits.operations)
