"""The fields of serialized protobuf messages, read from any buffer without a schema and without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

#: A NumPy array, whose own types say too little for strict checks.
Array = Any

#: Wire types of protobuf.
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

#: Bytes of the longest varint.
_LONGEST = 10


class MalformedMessage(ValueError):
    """Bytes that are no message."""


class Field(NamedTuple):
    """One field of a message, as it is written.

    ``payload`` are the bytes of a length-delimited or fixed field, ``number`` is the value of a varint, else
    0, and ``raw`` the whole field with its tag.
    """

    tag: int
    wire: int
    payload: memoryview
    number: int
    raw: memoryview


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message in order; raises ``MalformedMessage``."""
    position, end = 0, len(message)
    empty = message[:0]
    while position < end:
        start = position
        key, position = _varint(message, position)
        tag, wire = key >> 3, key & 7
        number, payload = 0, empty
        if wire == VARINT:
            number, position = _varint(message, position)
        else:
            size = 8 if wire == FIXED64 else 4
            if wire == LENGTH:
                size, position = _varint(message, position)
            elif wire not in (FIXED64, FIXED32):
                raise MalformedMessage(f"wire type {wire} at byte {start}")
            payload = message[position : position + size]
            position += size
        if position > end or not tag:
            raise MalformedMessage(f"a field at byte {start} is cut off")
        yield Field(tag, wire, payload, number, message[start:position])


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(message[position : position + _LONGEST]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, position + index + 1
    raise MalformedMessage(f"a number at byte {position} is cut off")


def varints(packed: memoryview) -> Array:
    """Return the numbers of a packed repeated field as ``int64``; raises ``MalformedMessage``."""
    content: Array = np.frombuffer(packed, np.uint8)
    if not content.size:
        return np.zeros(0, np.int64)
    ends: Array = np.flatnonzero(content < 0x80)
    if not ends.size or ends[-1] != content.size - 1:
        raise MalformedMessage("a packed field is cut off")
    starts: Array = np.concatenate([np.zeros(1, ends.dtype), ends[:-1] + 1])
    lengths: Array = ends - starts + 1
    if int(lengths.max()) > _LONGEST:
        raise MalformedMessage("a number of a packed field is too long")
    numbers: Array = np.zeros(ends.size, np.uint64)
    for index in range(int(lengths.max())):
        present: Array = lengths > index
        digits: Array = content[starts[present] + index].astype(np.uint64) & np.uint64(0x7F)
        numbers[present] |= digits << np.uint64(7 * index)
    return numbers.view(np.int64)


def varint(number: int) -> bytes:
    """Return a number of 64 bits in base 128."""
    number &= (1 << 64) - 1
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def number_field(tag: int, number: int) -> bytes:
    """Return a field with a varint."""
    return varint(tag << 3 | VARINT) + varint(number)


def bytes_field(tag: int, *parts: bytes | memoryview) -> bytes:
    """Return a length-delimited field of the joined parts."""
    return b"".join([varint(tag << 3 | LENGTH), varint(sum(map(len, parts))), *parts])


def signed(number: int) -> int:
    """Return a varint's value as a signed integer of 64 bits."""
    return number - (1 << 64) if number >> 63 else number


def joined(parts: Iterable[bytes | memoryview]) -> bytes:
    """Return the parts of a message as one."""
    return b"".join(parts)
