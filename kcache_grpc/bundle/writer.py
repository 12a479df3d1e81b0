"""Writes a bundle to a stream that can only be written to, entry by entry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from kcache_grpc.bundle.blocks import LEVEL, compress
from kcache_grpc.bundle.entries import Entry
from kcache_grpc.bundle.format import (
    BUNDLE_DOMAIN,
    DEFAULT_LIMITS,
    HEADER,
    LENGTH,
    EntryKind,
    Footer,
    IndexEntry,
    Limits,
    content_digest,
    header_to_bytes,
    index_to_bytes,
    require_within,
)
from kcache_grpc.bundle.metadata import BundleMetadata
from kcache_grpc.errors import ArgumentError, Conflict, IntegrityError, Unavailable
from kcache_grpc.model.signing import Signer, server_id


class WritableStream(Protocol):
    """A file, a pipe, or anything else that takes bytes in order."""

    def write(self, data: memoryview, /) -> object:
        """Takes ``data``, or this many of its bytes as it returns."""


@dataclass(frozen=True)
class WrittenBundle:
    """What a writer wrote. ``digest`` names the signed bundle, ``content_digest`` only its entries."""

    digest: bytes
    content_digest: bytes
    entries: tuple[IndexEntry, ...]
    metadata: BundleMetadata
    #: Bytes of the file.
    size: int


class BundleWriter:
    """Writes entries in the order of the calls, then index and footer. Not thread-safe.

    Equal entries in equal order give equal bytes, up to the metadata and the signature, with one version of
    zstd. After an error the stream holds no bundle: readers reject it, as it has no footer.
    """

    def __init__(
        self, stream: WritableStream, *, limits: Limits = DEFAULT_LIMITS, level: int = LEVEL
    ) -> None:
        self._stream = stream
        self._limits = limits
        self._level = level
        self._entries: dict[tuple[EntryKind, str], IndexEntry] = {}
        self._position = 0
        self._total = 0
        self._open = True
        self._hash = hashlib.sha256()
        self._put(HEADER)

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return self._position

    def has(self, kind: EntryKind, name: str) -> bool:
        """Whether an entry of this kind and name was written."""
        return (kind, name) in self._entries

    def add(self, entry: Entry) -> IndexEntry:
        """Writes a typed value, see ``write``. An entry that was written before with the same content
        stays.
        """
        name, content = entry.name, entry.content()
        existing = self._entries.get((entry.kind, name))
        if existing is not None:
            if existing.sha256 != hashlib.sha256(content).digest():
                raise Conflict(f"the bundle has {existing} with another content already", name=name)
            return existing
        return self.write(entry.kind, name, (content,), entry.attributes)

    def write(
        self,
        kind: EntryKind,
        name: str,
        content: Iterable[bytes],
        attributes: Mapping[str, str] = MappingProxyType({}),
        *,
        sha256: bytes | None = None,
    ) -> IndexEntry:
        """Writes one entry; ``content`` is read chunk by chunk, and never held as a whole.

        ``sha256``: of the content, where the caller knows it. Raises ``ArgumentError`` for a name that is not
        allowed or was written before, ``IntegrityError`` for a content with another digest,
        ``ResourceExhausted`` above limits.
        """
        self._require_open()
        header = header_to_bytes(kind, name, attributes)
        if (kind, name) in self._entries:
            raise ArgumentError(f"the bundle has {kind.label} {name} already")
        require_within("entries", len(self._entries) + 1, self._limits.max_entries)
        require_within("header_bytes", len(header), self._limits.max_header_bytes)
        self._open = False  # until the entry is whole
        offset, self._hash = self._position, hashlib.sha256()
        self._put(LENGTH.pack(len(header)) + header)
        digest, size = self._write_blocks(content)
        if sha256 is not None and digest != sha256:
            raise IntegrityError(
                f"the content of {kind.label} {name} does not match its digest {sha256.hex()}"
            )
        self._total += size
        stored = self._position - offset
        entry = IndexEntry(kind, name, dict(attributes), offset, stored, self._hash.digest(), size, digest)
        self._entries[kind, name] = entry
        self._open = True
        return entry

    def finish(self, metadata: BundleMetadata, signer: Signer) -> WrittenBundle:
        """Writes index and footer. The stream is neither flushed nor closed. Call it once.

        The metadata's ``creator`` is set to the identity of ``signer``.
        """
        self._require_open()
        self._open = False
        metadata = replace(metadata, creator=server_id(signer.public_key))
        entries = tuple(self._entries.values())
        index = index_to_bytes(entries, metadata)
        require_within("index_bytes", len(index), self._limits.max_index_bytes)
        self._put(LENGTH.pack(0))
        footer = Footer(
            self._position,
            len(index),
            signer.public_key,
            signer.sign(BUNDLE_DOMAIN, hashlib.sha256(index).digest()).signature,
        )
        self._put(index)
        self._put(footer.to_bytes())
        digest = hashlib.sha256(index).digest()
        return WrittenBundle(digest, content_digest(entries), entries, metadata, self._position)

    def _write_blocks(self, content: Iterable[bytes]) -> tuple[bytes, int]:
        """SHA-256 and bytes of the content."""
        digest, size = hashlib.sha256(), 0

        def counted() -> Iterable[bytes]:
            nonlocal size
            for chunk in content:
                digest.update(chunk)
                size += len(chunk)
                require_within("entry_bytes", size, self._limits.max_entry_bytes)
                require_within("total_bytes", self._total + size, self._limits.max_total_bytes)
                yield chunk

        for _, frame in compress(counted(), self._level):
            self._put(LENGTH.pack(len(frame)) + frame)
        self._put(LENGTH.pack(0))
        return digest.digest(), size

    def _put(self, data: bytes) -> None:
        require_within("file_bytes", self._position + len(data), self._limits.max_file_bytes)
        rest = memoryview(data)
        while rest:
            written = self._stream.write(rest)
            if written == 0:
                raise Unavailable("the stream of the bundle takes no more bytes")
            # Raw files and pipes may take a part; buffered ones take all, and some streams return nothing.
            rest = rest[written if isinstance(written, int) else len(rest) :]
        self._hash.update(data)
        self._position += len(data)

    def _require_open(self) -> None:
        if not self._open:
            raise ArgumentError("the bundle is finished, or an entry failed: begin a new one")
