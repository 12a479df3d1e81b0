"""Copies a bundle from a stream to a file, entry by entry, and stops at the first byte that cannot belong to
one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO, Protocol

from google.protobuf.message import DecodeError

from kcache_grpc._proto.kcache.v1 import bundle_pb2 as pb
from kcache_grpc.bundle.format import (
    FOOTER,
    HEADER,
    LENGTH,
    MAX_FRAME_BYTES,
    EntryKind,
    Limits,
    header_from_proto,
    require_header,
    require_within,
)
from kcache_grpc.errors import IntegrityError

_STEP = 1 << 20


class ReadableStream(Protocol):
    """A file, a pipe, a socket's file, or anything else that gives bytes in order."""

    def read(self, size: int, /) -> bytes | None:
        """At most ``size`` bytes, at least one; none at the end."""


def spool(source: ReadableStream, limits: Limits, directory: Path | None) -> IO[bytes]:
    """A temporary file without a name that has all bytes of ``source``, which are a bundle as far as framing
    goes.

    Memory stays flat. Nothing is decompressed or trusted: that is for the reader of the file.
    Raises ``IntegrityError`` and ``ResourceExhausted`` as soon as the bytes show it.
    """
    file = tempfile.TemporaryFile(prefix="kcache-bundle-", dir=directory)  # noqa: SIM115 (the caller's)
    try:
        _Spool(source, limits, file).copy()
        file.flush()
    except BaseException:
        file.close()
        raise
    return file


class _Spool:
    """One copy."""

    def __init__(self, source: ReadableStream, limits: Limits, file: IO[bytes]) -> None:
        self._source, self._limits, self._file = source, limits, file
        self._position = 0

    def copy(self) -> None:
        """Header, entries, index and footer."""
        require_header(self._take(len(HEADER), "its header"))
        seen: set[tuple[EntryKind, str]] = set()
        while size := self._length("the entries"):
            require_within("header_bytes", size, self._limits.max_header_bytes)
            key = self._header(self._take(size, "the header of an entry"))
            if key in seen:
                raise IntegrityError(f"the bundle has {key[0].label} {key[1]} twice", finding="duplicate")
            seen.add(key)
            require_within("entries", len(seen), self._limits.max_entries)
            while frame := self._length(f"{key[0].label} {key[1]}"):
                if frame > MAX_FRAME_BYTES:
                    raise IntegrityError(f"the bundle has a block of {frame} bytes", finding="block")
                self._take(frame, f"{key[0].label} {key[1]}")
        self._tail()

    def _tail(self) -> None:
        """Index and footer: all that follows."""
        size = 0
        while data := self._source.read(_STEP):
            size += len(data)
            require_within("index_bytes", size - FOOTER.size, self._limits.max_index_bytes)
            self._write(data)

    def _header(self, data: bytes) -> tuple[EntryKind, str]:
        try:
            kind, name, _ = header_from_proto(pb.BundleEntryHeader.FromString(data))
        except DecodeError as error:
            raise IntegrityError(
                f"the header of an entry cannot be read: {error}", finding="header"
            ) from error
        return kind, name

    def _length(self, inside: str) -> int:
        return LENGTH.unpack(self._take(LENGTH.size, inside))[0]

    def _take(self, size: int, inside: str) -> bytes:
        """Exactly ``size`` bytes, which are copied."""
        parts: list[bytes] = []
        left = size
        while left:
            data = self._source.read(min(left, _STEP))
            if not data:
                raise IntegrityError(
                    f"the bundle is truncated: it ends at byte {self._position}, inside {inside}",
                    finding="truncated",
                )
            parts.append(data)
            left -= len(data)
            self._write(data)
        return b"".join(parts)

    def _write(self, data: bytes) -> None:
        self._position += len(data)
        require_within("file_bytes", self._position, self._limits.max_file_bytes)
        self._file.write(data)
