"""Reads bundles: from files at random, from streams in order. Nothing is decompressed before its digest
held.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from google.protobuf.message import DecodeError

from kcache_grpc._proto.kcache.v1 import bundle_pb2 as pb
from kcache_grpc.bundle.blocks import decompress
from kcache_grpc.bundle.format import (
    BUNDLE_DOMAIN,
    DEFAULT_LIMITS,
    FOOTER,
    HEADER,
    LENGTH,
    MAX_FRAME_BYTES,
    EntryKind,
    Footer,
    IndexEntry,
    Limits,
    content_digest,
    header_from_proto,
    index_from_bytes,
    read_footer,
    require_header,
    require_within,
)
from kcache_grpc.bundle.stream import ReadableStream, spool
from kcache_grpc.errors import ArgumentError, IntegrityError, NotFound, PermissionDenied, Unavailable
from kcache_grpc.model.signing import Signed, Verifier, key_id_of, server_id

_STEP = 1 << 20
#: Entries of at most this many stored bytes are read in one piece; larger ones are read twice, in steps.
_WHOLE = 8 << 20
#: Reads a number of bytes at an offset of the file.
_Read = Callable[[int, int], bytes]


class Bundle:
    """An open bundle, whose index is signed by the key that it names. Thread-safe; a context manager.

    Whether that key may be trusted is for the caller: see ``require_trusted``. Every method that reads
    raises ``IntegrityError`` for bytes that are not those of the index.
    """

    def __init__(self, descriptor: int, source: str, limits: Limits = DEFAULT_LIMITS) -> None:
        """Takes over ``descriptor``, of a regular file. ``source`` names it in messages."""
        self.source = source
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            self._read_index(limits)
        except BaseException as error:
            self.close()
            if isinstance(error, IntegrityError):
                error.metadata.setdefault("path", source)
            raise

    def _read_index(self, limits: Limits) -> None:
        self.size = os.fstat(self._descriptor).st_size
        require_within("file_bytes", self.size, limits.max_file_bytes)
        require_header(self._pread(len(HEADER), 0))
        start = max(self.size - FOOTER.size, 0)
        footer = read_footer(self._pread(FOOTER.size, start), self.size)
        require_within("index_bytes", footer.index_size, limits.max_index_bytes)
        index = self._pread(footer.index_size, footer.index_offset)
        self.digest = hashlib.sha256(index).digest()
        self.public_key = footer.public_key
        _verify(Signed(self.digest, footer.signature, key_id_of(footer.public_key)), footer)
        if self._pread(LENGTH.size, footer.index_offset - LENGTH.size) != LENGTH.pack(0):
            raise IntegrityError("the entries of the bundle have no end", finding="index")
        self.entries, self.metadata = index_from_bytes(index, footer, limits)
        self._by_name = {(entry.kind, entry.name): entry for entry in self.entries}
        keys = (*self.metadata.signer_public_keys, self.public_key)
        #: Raw public keys that signed the bundle, its manifests and bindings, by key id.
        self.public_keys: Mapping[bytes, bytes] = {key_id_of(key): key for key in keys}

    @property
    def signer(self) -> str:
        """Identity of the key that signed the bundle: 64 hex digits, as ``server_id`` of clients."""
        return server_id(self.public_key)

    @property
    def content_digest(self) -> bytes:
        """SHA-256 of what the entries are, without who made the bundle and when."""
        return content_digest(self.entries)

    def of_kind(self, kind: EntryKind) -> tuple[IndexEntry, ...]:
        """Entries of one kind, in file order."""
        return tuple(entry for entry in self.entries if entry.kind is kind)

    def find(self, kind: EntryKind, name: str) -> IndexEntry | None:
        """The entry of a kind and name; ``None`` where the bundle has none."""
        return self._by_name.get((kind, name))

    def require_trusted(self, trusted: Collection[str]) -> None:
        """Raises ``PermissionDenied`` unless the signer is among ``trusted`` identities."""
        if self.signer not in trusted:
            raise PermissionDenied(
                f"{self.source} is signed by {self.signer}, which is not trusted; if it should be, name "
                "it as a "
                "trusted signer (trust, --trust, KCACHE_TRUST)",
                signer=self.signer,
                finding="untrusted",
            )

    def signed_payload(self, domain: bytes, signed: Signed, trusted: Collection[str] | None = None) -> bytes:
        """What a manifest or binding of the bundle says, once its signature held under a key of the bundle.

        ``trusted``: identities that may have made it; ``None``: any key that the bundle names. Raises
        ``IntegrityError``, ``PermissionDenied`` for a signer that is not trusted.
        """
        key = self.public_keys.get(signed.key_id)
        subject = domain.rstrip(b"\0").decode()
        if key is None:
            raise IntegrityError(
                f"a {subject} is signed by the key {signed.key_id.hex()}, which the bundle does not have",
                finding="signature",
            )
        if trusted is not None and server_id(key) not in trusted:
            raise PermissionDenied(
                f"a {subject} is signed by {server_id(key)}, which is not trusted",
                signer=server_id(key),
                finding="untrusted",
            )
        try:
            return Verifier(key).verify(domain, signed)
        except IntegrityError as error:
            error.metadata.setdefault("finding", "signature")
            raise

    def read(self, entry: IndexEntry) -> bytes:
        """The content of an entry, verified."""
        return b"".join(self.chunks(entry))

    def chunks(self, entry: IndexEntry) -> Iterator[bytes]:
        """The content of an entry in steps of at most 1 MiB; memory stays flat.

        The bytes count only once the iterator is at its end: the last digest is compared there.
        """
        if entry.stored_size <= _WHOLE:
            stored = self._pread(entry.stored_size, entry.offset)
            _require_digest(hashlib.sha256(stored).digest(), entry)
            base = entry.offset
            blocks = _Blocks(entry, lambda size, offset: stored[offset - base : offset - base + size])
        else:
            self._require_stored(entry)
            blocks = _Blocks(entry, self._pread)
        digest, size = hashlib.sha256(), 0
        for content in blocks:
            size += len(content)
            if size > entry.size:
                raise IntegrityError(f"{entry} has more content than the index says", finding="bomb")
            digest.update(content)
            yield content
        if size != entry.size or digest.digest() != entry.sha256:
            raise IntegrityError(f"the content of {entry} does not match its digest", finding="content")

    def file_bytes(self, step: int = _STEP) -> Iterator[bytes]:
        """The bytes of the file in order, at most ``step`` at a time, as they are: for who sends it on."""
        for offset in range(0, self.size, step):
            yield self._pread(min(step, self.size - offset), offset)

    def _require_stored(self, entry: IndexEntry) -> None:
        """The stored bytes match their digest."""
        digest = hashlib.sha256()
        for offset in range(entry.offset, entry.end, _STEP):
            digest.update(self._pread(min(_STEP, entry.end - offset), offset))
        _require_digest(digest.digest(), entry)

    def _pread(self, size: int, offset: int) -> bytes:
        """Exactly ``size`` bytes."""
        if not self._close.alive:
            raise ArgumentError(f"the bundle {self.source} is closed")
        parts: list[bytes] = []
        while size:
            try:
                data = os.pread(self._descriptor, size, offset)
            except OSError as error:
                raise Unavailable(
                    f"the bundle {self.source} cannot be read: {error.strerror}", path=self.source
                ) from error
            if not data:
                raise IntegrityError(
                    f"the bundle is truncated: it ends at byte {offset}", finding="truncated"
                )
            parts.append(data)
            size, offset = size - len(data), offset + len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Closes the file."""
        self._close()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Blocks:
    """The blocks of one entry, decompressed, by a function that reads this many bytes at an offset of the
    file.
    """

    def __init__(self, entry: IndexEntry, read: _Read) -> None:
        self._entry, self._read = entry, read
        self._position = entry.offset

    def __iter__(self) -> Iterator[bytes]:
        self._require_header(self._take(self._length()))
        while size := self._length():
            if size > MAX_FRAME_BYTES:
                raise IntegrityError(f"{self._entry} has a block of {size} bytes", finding="block")
            yield decompress(self._take(size))
        if self._position != self._entry.end:
            raise IntegrityError(f"{self._entry} has bytes behind its last block", finding="block")

    def _require_header(self, data: bytes) -> None:
        """The header in front of the entry says what the index says."""
        entry = self._entry
        try:
            header = header_from_proto(pb.BundleEntryHeader.FromString(data))
        except DecodeError as error:
            raise IntegrityError(
                f"the header of {entry} cannot be read: {error}", finding="header"
            ) from error
        if header != (entry.kind, entry.name, entry.attributes):
            raise IntegrityError(f"the header of {entry} differs from the index", finding="header")

    def _length(self) -> int:
        return LENGTH.unpack(self._take(LENGTH.size))[0]

    def _take(self, size: int) -> bytes:
        if size > self._entry.end - self._position:
            raise IntegrityError(f"{self._entry} is longer than the index says", finding="block")
        data = self._read(size, self._position)
        self._position += size
        return data


def open_bundle(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Bundle:
    """The bundle in a regular file, its index verified under the key that it names.

    Raises ``NotFound``, ``PermissionDenied``, ``ArgumentError`` for a symbolic link, FIFO, device or
    directory, ``IntegrityError`` for what is no bundle or damaged, ``ResourceExhausted`` above limits,
    ``Unavailable`` where the device does not return its bytes.
    """
    return Bundle(_open_regular(Path(path)), str(path), limits)


def read_stream(
    source: ReadableStream,
    *,
    directory: Path | None = None,
    limits: Limits = DEFAULT_LIMITS,
    name: str = "the stream",
) -> Bundle:
    """The bundle that ``source`` gives, copied to a temporary file in ``directory`` and verified there.

    ``None``: the system's directory of temporary files. The file has no name, and goes with the bundle.
    Raises as ``open_bundle``.
    """
    with spool(source, limits, directory) as file:
        return Bundle(os.dup(file.fileno()), name, limits)


def _verify(signed: Signed, footer: Footer) -> None:
    try:
        Verifier(footer.public_key).verify(BUNDLE_DOMAIN, signed)
    except (IntegrityError, ValueError) as error:
        raise IntegrityError(
            "the signature of the bundle does not hold: its index was changed after it was signed",
            finding="signature",
        ) from error


def _require_digest(digest: bytes, entry: IndexEntry) -> None:
    if digest != entry.stored_sha256:
        raise IntegrityError(
            f"the stored bytes of {entry} do not match their digest in the index", finding="stored"
        )


def _open_regular(path: Path) -> int:
    """A descriptor of a regular file; never follows a link in its last part, and never waits."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"there is no bundle {path}", path=str(path), finding="missing") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ArgumentError(
                f"{path} is a symbolic link; name the bundle itself", path=str(path), finding="path"
            ) from error
        kind = PermissionDenied if isinstance(error, PermissionError) else ArgumentError
        raise kind(f"{path} cannot be opened: {error.strerror}", path=str(path), finding="path") from error
    except ValueError as error:  # a zero byte, or a character that paths do not have
        raise ArgumentError(f"{str(path)!r} cannot be opened: {error}", finding="path") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArgumentError(f"{path} is not a regular file", path=str(path), finding="path")
    return descriptor
