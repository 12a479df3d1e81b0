"""The file of a package: named parts behind a header with their digests.

Integers are little endian. Magic (8 bytes), size of the header (8), header (JSON), SHA-256 of all before it
(32), then the parts, in order, each at the next multiple of 64 bytes. The header has the version, and for
each part its name, size and SHA-256. The last part ends the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from kcache_grpc.errors import ArgumentError, IntegrityError, NotFound, PermissionDenied

MAGIC = b"\x89KCP\r\n\x1a\n"
VERSION = 1
_ALIGNMENT = 64
_MOST_HEADER = 1 << 20


@dataclass(frozen=True)
class Part:
    """A part of a file. ``digest``: SHA-256."""

    name: str
    offset: int
    size: int
    digest: bytes


def is_package(path: Path) -> bool:
    """Whether a file begins as packages do; ``False`` for one that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class PackageFile:
    """An open package. Every read is compared with the digest in the header."""

    def __init__(self, path: Path) -> None:
        """Raises ``NotFound``, ``PermissionDenied``, ``IntegrityError``, ``ArgumentError``."""
        self.path = path
        self._file = _open(path)
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def _read_header(self) -> None:
        start = self._take(len(MAGIC) + 8, 0)
        if start[: len(MAGIC)] != MAGIC:
            raise self._damaged("it does not begin as a package")
        length = int.from_bytes(start[len(MAGIC) :], "little")
        if length > _MOST_HEADER:
            raise self._damaged("its header is too large")
        header = self._take(length, len(start))
        digest = self._take(32, len(start) + length)
        if hashlib.sha256(start + header).digest() != digest:
            raise self._damaged("its header does not match its digest")
        #: SHA-256 of the header, which has the digests of all parts: it names the package.
        self.digest = digest
        self.parts = self._parts(header, len(start) + length + 32)

    def _parts(self, header: bytes, end: int) -> Mapping[str, Part]:
        try:
            data = json.loads(header)
            if data["version"] != VERSION:
                raise ArgumentError(
                    f"{self.path} is a package of version {data['version']}, and this kcache reads {VERSION}",
                    path=str(self.path),
                )
            parts: dict[str, Part] = {}
            for name, size, digest in cast("Sequence[Any]", data["parts"]):
                if type(size) is not int or size < 0:
                    raise ValueError("a size is no integer")
                parts[str(name)] = Part(str(name), _aligned(end), size, bytes.fromhex(digest))
                end = _aligned(end) + size
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise self._damaged(f"its header cannot be read: {error}") from error
        actual = os.fstat(self._file.fileno()).st_size
        if actual != end:
            state = "truncated" if actual < end else "longer than its header says"
            raise self._damaged(f"it is {state}: {actual} bytes of {end}")
        return parts

    def read(self, name: str) -> bytearray:
        """The bytes of a part, verified, in its own memory. Raises ``IntegrityError``."""
        part = self.parts.get(name)
        if part is None:
            raise self._damaged(f"it has no part {name!r}")
        content = bytearray(part.size)
        self._file.seek(part.offset)
        size = self._file.readinto(content)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        if size != part.size or hashlib.sha256(content).digest() != part.digest:
            raise self._damaged(f"its part {name!r} does not match its digest")
        return content

    def _take(self, size: int, offset: int) -> bytes:
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) != size:
            raise self._damaged("it is truncated")
        return data

    def _damaged(self, reason: str) -> IntegrityError:
        return IntegrityError(f"the package {self.path} is damaged: {reason}", path=str(self.path))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> PackageFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(path: Path) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"there is no package {path}", path=str(path)) from error
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else ArgumentError
        raise kind(f"{path} cannot be opened: {error.strerror}", path=str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArgumentError(f"{path} is not a regular file", path=str(path))
    return os.fdopen(descriptor, "rb")


def write_package(path: Path, parts: Sequence[tuple[str, Sequence[Any]]]) -> bytes:
    """Write a package of parts, each in pieces of bytes; the SHA-256 of its header.

    The file appears whole, durably, in place of one that was there. Raises ``NotFound`` for a directory that
    is not there, ``ArgumentError`` where it cannot be written.
    """
    listed = [[name, sum(map(_size, pieces)), _digest(pieces).hex()] for name, pieces in parts]
    header = json.dumps({"version": VERSION, "parts": listed}, separators=(",", ":")).encode()
    start = MAGIC + len(header).to_bytes(8, "little") + header
    digest = hashlib.sha256(start).digest()
    try:
        with _replacing(path) as file:
            file.write(start + digest)
            for _, pieces in parts:
                file.write(bytes(_aligned(file.tell()) - file.tell()))
                for piece in pieces:
                    file.write(piece)
    except FileNotFoundError as error:
        raise NotFound(f"there is no directory {path.parent}", path=str(path.parent)) from error
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror}", path=str(path)) from error
    return digest


@contextlib.contextmanager
def _replacing(path: Path) -> Generator[BinaryIO]:
    """A new file that takes the name ``path`` once it is on disk as a whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    finally:
        temporary.unlink(missing_ok=True)


def _digest(pieces: Iterable[Any]) -> bytes:
    content = hashlib.sha256()
    for piece in pieces:
        content.update(piece)
    return content.digest()


def _size(piece: Any) -> int:
    return memoryview(piece).nbytes


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
