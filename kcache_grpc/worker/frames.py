"""The frames between a service and its workers: a JSON header and binary blobs, preceded by their lengths.

A frame is ``u32 header bytes, u64 bytes of all blobs`` (big endian), the header in UTF-8, the blobs one after
the other. The header's ``blobs`` lists their sizes. Nothing in a frame is executable.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_LENGTHS = struct.Struct(">IQ")
#: Far above all documented limits: a longer message is not a valid frame.
MAX_HEADER_BYTES = 64 << 20
MAX_BLOB_BYTES = 4 << 30


class BrokenFrameError(Exception):
    """The other side sent something that is not a frame, or closed the channel inside one."""


@dataclass(frozen=True)
class Frame:
    """One message. ``header`` is JSON; its ``type`` says what the message is."""

    header: Mapping[str, Any]
    blobs: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def type(self) -> str:
        """What the message is."""
        return str(self.header.get("type", ""))


def encode(frame: Frame) -> list[bytes]:
    """The parts of a frame, in order; large blobs are not copied."""
    header = json.dumps({**frame.header, "blobs": [len(blob) for blob in frame.blobs]}).encode()
    lengths = _LENGTHS.pack(len(header), sum(map(len, frame.blobs)))
    return [lengths + header, *frame.blobs]


def decode(content: bytes) -> Frame:
    """Decodes ``content``, which is one complete frame. Raises ``BrokenFrameError``."""
    if len(content) < _LENGTHS.size:
        raise BrokenFrameError("a frame is shorter than its prefix")
    header_bytes, blob_bytes = _lengths(content[: _LENGTHS.size])
    start = _LENGTHS.size + header_bytes
    if len(content) != start + blob_bytes:
        raise BrokenFrameError("the length of a frame differs from that in its prefix")
    return _frame(content[_LENGTHS.size : start], content[start:])


def send(channel: socket.socket, frame: Frame) -> None:
    """Writes a frame; blocks until all of it is sent."""
    for part in encode(frame):
        channel.sendall(part)


def receive(channel: socket.socket) -> Frame | None:
    """Reads a frame; blocks. ``None`` when the other side closed between two frames."""
    prefix = _read(channel, _LENGTHS.size, may_end=True)
    if not prefix:
        return None
    header_bytes, blob_bytes = _lengths(prefix)
    header = _read(channel, header_bytes)
    return _frame(header, _read(channel, blob_bytes))


async def receive_async(reader: asyncio.StreamReader) -> Frame:
    """Reads a frame. Raises ``BrokenFrameError`` when the other side is gone or sends something else."""
    try:
        header_bytes, blob_bytes = _lengths(await reader.readexactly(_LENGTHS.size))
        header = await reader.readexactly(header_bytes)
        body = await reader.readexactly(blob_bytes) if blob_bytes else b""
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise BrokenFrameError("the other side closed the channel") from error
    return _frame(header, body)


def _lengths(prefix: bytes) -> tuple[int, int]:
    header_bytes, blob_bytes = _LENGTHS.unpack(prefix)
    if header_bytes > MAX_HEADER_BYTES or blob_bytes > MAX_BLOB_BYTES:
        raise BrokenFrameError(f"a frame of {header_bytes} + {blob_bytes} bytes exceeds the limit")
    return header_bytes, blob_bytes


def _frame(header: bytes, body: bytes) -> Frame:
    try:
        fields: dict[str, Any] = json.loads(header)
        sizes: list[int] = fields.pop("blobs")
    except (ValueError, KeyError, AttributeError) as error:
        raise BrokenFrameError("a frame has no JSON header") from error
    if sum(sizes) != len(body):
        raise BrokenFrameError("a frame's blobs do not add up to its length")
    blobs: list[bytes] = []
    start = 0
    for size in sizes:
        blobs.append(body[start : start + size])
        start += size
    return Frame(fields, tuple(blobs))


def _read(channel: socket.socket, size: int, may_end: bool = False) -> bytes:
    parts: list[bytes] = []
    missing = size
    while missing:
        part = channel.recv(min(missing, 1 << 20))
        if not part:
            if may_end and missing == size:
                return b""
            raise BrokenFrameError("the other side closed the channel inside a frame")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
