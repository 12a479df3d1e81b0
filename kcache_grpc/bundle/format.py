"""The layout of a bundle file: header, entries, index, footer. All integers are little endian.

::

    header   8 bytes magic, u16 version, 6 zero bytes
    entry    u32 header size, BundleEntryHeader; blocks: u32 frame size, one zstd frame; u32 0
    ...      entries without gaps
    end      u32 0
    index    BundleIndex
    footer   u64 index offset, u64 index size, 32 bytes public key, 64 bytes Ed25519 signature, 8 bytes magic

The signature covers the domain ``kcache.bundle.v1`` and the SHA-256 of the index. The index has the SHA-256
of the stored bytes of each entry, and the other parts have one possible value each: no byte of a file is
without protection. docs/guide/bundles.md describes the format byte by byte.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from google.protobuf.message import DecodeError

from kcache_grpc._proto.kcache.v1 import bundle_pb2 as pb
from kcache_grpc.bundle.metadata import BundleMetadata, metadata_from_proto, metadata_to_proto
from kcache_grpc.errors import ArgumentError, IntegrityError, ResourceExhausted

#: Extension of bundle files.
SUFFIX = ".kcb"
#: The first byte is no text; the line ends and 0x1A show conversions, as in PNG.
MAGIC = b"\x89KCB\r\n\x1a\n"
END_MAGIC = b"KCB-END\n"
VERSION = 1
HEADER = MAGIC + struct.pack("<H6x", VERSION)
#: Index offset, index size, public key, signature, magic.
FOOTER = struct.Struct("<QQ32s64s8s")
LENGTH = struct.Struct("<I")
#: Domain of the signature of an index.
BUNDLE_DOMAIN = b"kcache.bundle.v1\0"
#: Domain of the digest of the entries only.
CONTENT_DOMAIN = b"kcache.bundle.content.v1\0"
#: Bytes of content in one zstd frame, at most.
BLOCK_BYTES = 1 << 20
#: zstd's own bound of the frame of a block is 4 KiB and some bytes more than the block.
MAX_FRAME_BYTES = BLOCK_BYTES + (8 << 10)
#: Content that one stored byte may stand for. The writer stays below it: see ``blocks.compress``.
MAX_RATIO = 1000
MAX_NAME, MAX_ATTRIBUTES, MAX_ATTRIBUTE = 200, 64, 65536

_NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{MAX_NAME - 1}}}")
_ATTRIBUTE = re.compile(r"[a-z0-9_]{1,64}")


class EntryKind(Enum):
    """What the content of an entry is; values are those on the wire."""

    SPEC = 1
    MAPPING = 2
    KERNEL = 3
    ARTIFACT = 4
    SCHEDULE = 5
    BLOB = 6

    @property
    def label(self) -> str:
        """The kind in lower case, as it is printed."""
        return self.name.lower()


@dataclass(frozen=True)
class Limits:
    """What a reader accepts and a writer makes, in bytes and entries."""

    max_file_bytes: int = 64 << 30
    max_entries: int = 1_000_000
    max_index_bytes: int = 256 << 20
    max_header_bytes: int = 256 << 10
    #: Content of one entry, and of all together, decompressed.
    max_entry_bytes: int = 8 << 30
    max_total_bytes: int = 64 << 30


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class IndexEntry:
    """An entry as the index has it: its kind and name, its offset, and the digests of its bytes."""

    kind: EntryKind
    name: str
    attributes: Mapping[str, str]
    #: Of the entry in the file, from its header's length to the zero length behind its last block.
    offset: int
    stored_size: int
    stored_sha256: bytes = field(repr=False)
    #: Of the content.
    size: int
    sha256: bytes

    @property
    def end(self) -> int:
        """Where the next entry begins."""
        return self.offset + self.stored_size

    def __str__(self) -> str:
        return f"{self.kind.label} {self.name}"


@dataclass(frozen=True)
class Footer:
    """The last bytes of a bundle."""

    index_offset: int
    index_size: int
    public_key: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        """``FOOTER.size`` bytes."""
        return FOOTER.pack(self.index_offset, self.index_size, self.public_key, self.signature, END_MAGIC)


def read_footer(data: bytes, file_size: int) -> Footer:
    """The footer of a file of this many bytes. Raises ``IntegrityError`` where it does not fit the file."""
    if len(data) != FOOTER.size:
        raise IntegrityError("the bundle is truncated: it has no footer", finding="truncated")
    offset, size, public_key, signature, magic = FOOTER.unpack(data)
    if magic != END_MAGIC:
        raise IntegrityError(
            "the bundle is truncated, or no bundle: it does not end with a footer", finding="truncated"
        )
    if offset < len(HEADER) + LENGTH.size or offset + size + FOOTER.size != file_size:
        raise IntegrityError(
            f"the index of the bundle lies outside of it: {size} bytes at {offset} of {file_size}",
            finding="index",
        )
    return Footer(offset, size, public_key, signature)


def require_header(data: bytes) -> None:
    """Raises ``IntegrityError`` for a file that is no bundle, or of a format that this version does not
    read.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise IntegrityError(
            "not a bundle: the file does not begin with the magic number of one", finding="header"
        )
    if data == HEADER:
        return
    version = int.from_bytes(data[8:10], "little")
    if len(data) == len(HEADER) and version > VERSION:
        raise IntegrityError(
            f"the bundle has version {version} of the format; this kcache-grpc reads version {VERSION}: "
            "install a newer one",
            finding="version",
            skew="bundle",
        )
    raise IntegrityError("the header of the bundle is damaged or truncated", finding="header")


def header_to_bytes(kind: EntryKind, name: str, attributes: Mapping[str, str]) -> bytes:
    """The header in front of an entry. Raises ``ArgumentError`` for a name or attribute that is not
    allowed.
    """
    problem = _name_problem(name) or _attributes_problem(tuple(attributes.items()))
    if problem:
        raise ArgumentError(f"{kind.label} {name!r}: {problem}")
    return _header_message(kind, name, attributes).SerializeToString(deterministic=True)


def header_from_proto(message: pb.BundleEntryHeader) -> tuple[EntryKind, str, dict[str, str]]:
    """Kind, name and attributes of an entry. Raises ``IntegrityError``."""
    pairs = tuple((item.name, item.value) for item in message.attributes)
    problem = _name_problem(message.name) or _attributes_problem(pairs)
    if not problem and [name for name, _ in pairs] != sorted({name for name, _ in pairs}):
        problem = "its attributes are not sorted by unique names"
    if problem:
        raise IntegrityError(f"the bundle has an entry {message.name!r}: {problem}", finding="name")
    try:
        return EntryKind(message.kind), message.name, dict(pairs)
    except ValueError as error:
        raise IntegrityError(
            f"the bundle has an entry {message.name!r} of the unknown kind {message.kind}: install a "
            "newer kcache-grpc",
            finding="kind",
            skew="bundle",
        ) from error


def index_to_bytes(entries: Iterable[IndexEntry], metadata: BundleMetadata) -> bytes:
    """The index. Deterministic."""
    message = pb.BundleIndex(format_version=VERSION, metadata=metadata_to_proto(metadata))
    for entry in entries:
        message.entries.append(
            pb.BundleIndexEntry(
                header=_header_message(entry.kind, entry.name, entry.attributes),
                offset=entry.offset,
                stored_bytes=entry.stored_size,
                stored_sha256=entry.stored_sha256,
                size_bytes=entry.size,
                sha256=entry.sha256,
            )
        )
    return message.SerializeToString(deterministic=True)


def index_from_bytes(
    data: bytes, footer: Footer, limits: Limits
) -> tuple[tuple[IndexEntry, ...], BundleMetadata]:
    """Entries and metadata of an index whose signature held.

    Raises ``IntegrityError`` for one that does not cover the file without gaps, ``ResourceExhausted`` above
    limits.
    """
    try:
        message = pb.BundleIndex.FromString(data)
    except DecodeError as error:
        raise IntegrityError(f"the index of the bundle cannot be read: {error}", finding="index") from error
    if message.format_version != VERSION:
        raise IntegrityError(
            f"the index has version {message.format_version}, its file version {VERSION}", finding="version"
        )
    require_within("entries", len(message.entries), limits.max_entries)
    entries = tuple(_entry_from_proto(item) for item in message.entries)
    require_within("total_bytes", sum(entry.size for entry in entries), limits.max_total_bytes)
    _require_contiguous(entries, footer, limits)
    return entries, metadata_from_proto(message.metadata, footer.public_key)


def content_digest(entries: Iterable[IndexEntry]) -> bytes:
    """SHA-256 of what the entries are, whoever wrote them and in whichever order: 32 bytes.

    Covers kind, name and content digest of each entry.
    """
    digest = hashlib.sha256(CONTENT_DOMAIN)
    for entry in sorted(entries, key=lambda item: (item.kind.value, item.name)):
        name = entry.name.encode()
        digest.update(struct.pack("<HHQ", entry.kind.value, len(name), entry.size) + name + entry.sha256)
    return digest.digest()


def require_within(limit: str, value: int, most: int) -> None:
    """Raises ``ResourceExhausted`` where ``value`` is above the limit named ``limit``."""
    if value > most:
        raise ResourceExhausted(
            f"the bundle passes the limit {limit}: {value}, at most {most} are allowed",
            limit=f"bundle.{limit}",
            finding="limit",
        )


def _entry_from_proto(message: pb.BundleIndexEntry) -> IndexEntry:
    kind, name, attributes = header_from_proto(message.header)
    if len(message.sha256) != 32 or len(message.stored_sha256) != 32:
        raise IntegrityError(f"the index has a digest of a wrong length for {name}", finding="index")
    return IndexEntry(
        kind,
        name,
        attributes,
        message.offset,
        message.stored_bytes,
        message.stored_sha256,
        message.size_bytes,
        message.sha256,
    )


def _require_contiguous(entries: tuple[IndexEntry, ...], footer: Footer, limits: Limits) -> None:
    """Entries follow each other without gaps, up to the index; names are unique and sizes within limits."""
    seen: set[tuple[EntryKind, str]] = set()
    end = len(HEADER)
    for entry in entries:
        require_within("entry_bytes", entry.size, limits.max_entry_bytes)
        if entry.offset != end or entry.end + LENGTH.size > footer.index_offset:
            raise IntegrityError(
                f"the index places {entry} at bytes {entry.offset} to {entry.end}, outside of its place "
                "in the bundle",
                finding="index",
            )
        if (entry.kind, entry.name) in seen:
            raise IntegrityError(f"the bundle has {entry} twice", finding="duplicate")
        seen.add((entry.kind, entry.name))
        end = entry.end
    if end + LENGTH.size != footer.index_offset:
        raise IntegrityError("the bundle has bytes that its index does not name", finding="index")


def _header_message(kind: EntryKind, name: str, attributes: Mapping[str, str]) -> pb.BundleEntryHeader:
    return pb.BundleEntryHeader(
        kind=pb.BundleEntryKind.Name(kind.value),  # pyright: ignore[reportArgumentType]
        name=name,
        attributes=[pb.BundleAttribute(name=key, value=attributes[key]) for key in sorted(attributes)],
    )


def _name_problem(name: str) -> str:
    if not _NAME.fullmatch(name) or ".." in name:
        return f"a name is 1 to {MAX_NAME} of a-z, 0-9, '.', '_' and '-', without '..', and no path"
    return ""


def _attributes_problem(attributes: tuple[tuple[str, str], ...]) -> str:
    if len(attributes) > MAX_ATTRIBUTES:
        return f"it has {len(attributes)} attributes, more than {MAX_ATTRIBUTES}"
    for name, value in attributes:
        if not _ATTRIBUTE.fullmatch(name):
            return f"the attribute name {name!r} is not 1 to 64 of a-z, 0-9 and '_'"
        if len(value) > MAX_ATTRIBUTE:
            return f"the attribute {name} has {len(value)} characters, more than {MAX_ATTRIBUTE}"
    return ""
