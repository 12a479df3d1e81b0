"""Limits on what a program may be. Each protects one resource of the process that parses it."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.errors import LimitExceeded

#: Bytes of a constant up to which it is part of the spec; a larger one becomes a buffer after the inputs.
INLINE_CONSTANT_BYTES = 1024
_MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Documented limits; passing one raises ``LimitExceeded`` and nothing is kept.

    None of them changes the key of a program that passes.
    """

    #: Bytes of the program. Checked first, so that a huge body costs nothing; weights of this size belong in
    #: arguments.
    program_bytes: int = 64 * _MIB
    #: Operations after calls are inlined. Bounds time (about 60 us each) and calls that double at every
    #: level.
    operations: int = 100_000
    #: Regions inside regions. Regions are the only thing that the importer recurses over.
    region_depth: int = 64
    #: Brackets inside brackets in a text. The native parser recurses on its stack: checked before it runs.
    #: A type inside an attribute inside an op uses about five, so regions reach their own limit first.
    bracket_depth: int = 512
    #: Functions that call functions. Bounds the frames kept while calls are inlined.
    call_depth: int = 256
    #: Elements of one tensor type: 2^40, so that element counts times 16 bytes stay far below 2^63.
    tensor_elements: int = 1 << 40
    #: Rank of one tensor type. Loops of this depth are the most that code generation is asked for.
    rank: int = 32
    #: Bytes of all constants together, splats counted as one element.
    constant_bytes: int = 64 * _MIB
    #: Characters of the attributes of one operation: aliases can nest an attribute into exponential text.
    attribute_characters: int = _MIB
    #: Arguments, and results, of the program: each is a buffer in every call.
    arguments: int = 16_384


def check(what: str, actual: int, limit: int) -> None:
    """Raise ``LimitExceeded`` when ``actual`` is above ``limit``."""
    if actual > limit:
        raise LimitExceeded(what, actual, limit)
