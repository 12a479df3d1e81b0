"""Limits on programs. Each protects one resource of the process that parses a program."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.errors import LimitExceeded

#: Largest constant, in bytes, that is part of the spec; a larger one becomes a buffer after the inputs.
INLINE_CONSTANT_BYTES = 1024
_MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Documented limits; a program that exceeds one is rejected with ``LimitExceeded``.

    No limit changes the key of a program that is accepted.
    """

    #: Bytes of the program. Checked first, so that a huge body is not parsed; pass weights of this size
    #: as arguments.
    program_bytes: int = 64 * _MIB
    #: Operations after inlining. Bounds the time, and calls whose inlined size doubles with every level.
    operations: int = 100_000
    #: Nesting depth of regions, over which the importer recurses.
    region_depth: int = 64
    #: Nesting depth of brackets in a text, checked before the native parser, which recurses, runs. A type
    #: inside an attribute inside an op uses about five, so regions reach their own limit first.
    bracket_depth: int = 512
    #: Depth of the call graph. Bounds the stack of the inliner.
    call_depth: int = 256
    #: Elements of one tensor type: 2^40, so that element counts times 16 bytes stay far below 2^63.
    tensor_elements: int = 1 << 40
    #: Rank of one tensor type. Bounds the depth of the loop nests that code generation emits.
    rank: int = 32
    #: Total bytes of all constants; a splat counts as one element.
    constant_bytes: int = 64 * _MIB
    #: Characters of the attributes of one operation: the text of nested aliases can be exponential.
    attribute_characters: int = _MIB
    #: Number of arguments and number of results; each is a buffer of every call.
    arguments: int = 16_384


def check(quantity: str, actual: int, limit: int) -> None:
    """Raise ``LimitExceeded`` when ``actual`` is above ``limit``."""
    if actual > limit:
        raise LimitExceeded(quantity, actual, limit)
