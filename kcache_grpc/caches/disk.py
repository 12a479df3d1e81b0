"""The cache in files of a directory, which processes share.

Layout of the directory, which must belong to the user (it is created with mode 0700)::

    <64 hex>          one entry, named by the digest of its key
    tmp/.tmp-*        entries that are being written
    corrupt/<64 hex>  the damaged entry of a key, moved here
    lock              held while a stale or damaged entry is removed

An entry::

    0   4   version prefix: first bytes of the SHA-256 of "kcache.caches.disk/<version>"
    4   32  digest of the key
    36  8   size of the encoded value, big-endian
    44  32  SHA-256 of the 44 bytes above and the encoded value
    76  -   the encoded value

An entry is written to a temporary file, synced to the device, and linked to its name: ``link(2)`` fails if
the name exists. So a reader sees a whole entry or none, and insertion needs no lock. Entries are removed
under the lock only, after they were read again: an entry that another process has just inserted is not
removed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kcache_grpc.caches.base import AsyncCache, Key, Value
from kcache_grpc.caches.encoding import decode, describe, encode_value, key_digest
from kcache_grpc.caches.files import Files, NotAFileError
from kcache_grpc.caches.legacy import LegacyEntries
from kcache_grpc.errors import CacheError

_PREFIX_SIZE = 4
_HEADER_SIZE = 76
#: Seconds after which a temporary file has no writer.
_ABANDONED_AFTER = 3600.0


@dataclass(frozen=True)
class _Entry:
    """The content of a file: ``value``; or that it is ``stale``, or why it is ``damaged``."""

    value: Any = None
    stale: bool = False
    damaged: str = ""


class OnDiskCache(AsyncCache[Key, Value]):
    """A cache in files, safe for threads and processes, without a bound on its size.

    ``insert`` returns when the content is on the device. Whenever a process or the machine stops, an entry is
    there as a whole or not at all.

    Args:
        name: name of the directory below ``$KCACHE_CACHE_DIR/caches`` (default of the variable:
            ``$XDG_CACHE_HOME/kcache``), or its absolute path.
        base_dir: the directory itself, instead of ``name``.
        allow_pickle: also read the entries that ``torch._inductor.cache`` wrote to this directory. They are
            pickles; those of plain data are read without running code, others raise ``CacheError``.
        files: the file operations.

    Raises:
        CacheError: ``name`` is not the name of a directory.
    """

    #: Version of the entries; a subclass raises it when the meaning of its values changes.
    version: int = 0

    def __init__(
        self,
        name: str | os.PathLike[str] | None = None,
        *,
        base_dir: str | os.PathLike[str] | None = None,
        allow_pickle: bool = False,
        files: Files | None = None,
    ) -> None:
        self.name = os.fspath(name or "on_disk_cache")
        if not Path(self.name).is_absolute() and (self.name == ".." or self.name != Path(self.name).name):
            raise CacheError(f"name {self.name!r} is neither the name of a directory nor an absolute path")
        if base_dir is not None:
            self.base_dir = Path(base_dir).absolute()
        self._files = files or Files()
        self._legacy = LegacyEntries(self._files) if allow_pickle else None
        #: The directory whose abandoned files this object has removed.
        self._swept: Path | None = None

    @cached_property
    def base_dir(self) -> Path:
        """The directory of the entries. It may be assigned."""
        if Path(self.name).is_absolute():
            return Path(self.name)
        return cache_directory() / "caches" / self.name

    @property
    def version_prefix(self) -> bytes:
        """The first 4 bytes of each entry of this version."""
        return hashlib.sha256(f"kcache.caches.disk/{self.version}".encode()).digest()[:_PREFIX_SIZE]

    def get(self, key: Key) -> Value | None:
        """Returns the value of ``key``, or ``None``. An entry of another version is removed, if it can be.

        Raises:
            CacheError: the entry is damaged or cannot be read; the message names the key. A damaged entry is
                moved to ``corrupt/``, so that the key can be inserted again.
        """
        digest = key_digest(key)
        with self._named_errors(key, "read"):
            self._files.check_directory(self.base_dir)
            entry = self._read(digest)
            if entry is not None and entry.value is None:
                entry = self._replaced(entry, key, digest)
            if entry is None and self._legacy is not None:
                return self._legacy.get(self.base_dir, key)
        if entry is None:
            return None
        if entry.damaged:
            raise CacheError(
                f"the entry of key {describe(key)} is damaged: {entry.damaged}; it was moved to "
                f"{self._corrupt_path(digest)}, and the key can be inserted again"
            )
        return entry.value

    def insert(self, key: Key, value: Value) -> bool:
        """Adds an entry; ``False`` if the key exists in this version.

        Raises:
            CacheError: the key or the value cannot be encoded, or the entry cannot be written, as on a full
                device; the message names the key, and nothing is added.
        """
        digest = key_digest(key)
        content = self._content(digest, encode_value(value))
        with self._named_errors(key, "written"):
            self._prepare()
            with suppress(NotAFileError):
                if self._files.read(self._path(digest), _PREFIX_SIZE) == self.version_prefix:
                    return False
            if self._legacy is not None and self._legacy.contains(self.base_dir, key):
                return False
            return self._publish(digest, content)

    def set_aside(self, key: Key, value: Value) -> bool:
        """Moves the entry of ``key`` to ``corrupt/`` if it has this value; whether it had.

        Raises ``CacheError`` if that is not possible; the message names the key.
        """
        digest = key_digest(key)
        with self._named_errors(key, "moved to corrupt/"):
            self._files.check_directory(self.base_dir)
            if self._read(digest) is None:
                return False
            with self._files.locked(self.base_dir / "lock"):
                entry = self._read(digest)
                if entry is None or entry.value != value:
                    return False
                self._files.make_directory(self.base_dir / "corrupt")
                self._files.rename(self._path(digest), self._corrupt_path(digest))
                return True

    def _publish(self, digest: bytes, content: bytes) -> bool:
        temporary = self._files.write_temporary(self.base_dir / "tmp", content)
        try:
            while not self._files.link(temporary, self._path(digest)):
                entry = self._remove_invalid(digest, damaged=False)
                if entry is not None:
                    return False
            return True
        finally:
            self._files.remove(temporary)

    def _read(self, digest: bytes) -> _Entry | None:
        try:
            data = self._files.read(self._path(digest))
        except NotAFileError:
            return _Entry(damaged="it is not a regular file")
        if data is None:
            return None
        prefix, header, content = data[:_PREFIX_SIZE], data[:_HEADER_SIZE], data[_HEADER_SIZE:]
        if len(prefix) == _PREFIX_SIZE and prefix != self.version_prefix:
            return _Entry(stale=True)
        if len(header) < _HEADER_SIZE or int.from_bytes(header[36:44], "big") != len(content):
            return _Entry(damaged="it is truncated or has extra bytes")
        if header[44:] != hashlib.sha256(header[:44] + content).digest():
            return _Entry(damaged="it does not match its checksum")
        if header[4:36] != digest:
            return _Entry(damaged="it belongs to another key")
        try:
            value = decode(content)
        except CacheError as error:
            return _Entry(damaged=error.message)
        return _Entry(damaged="its value is None") if value is None else _Entry(value=value)

    def _content(self, digest: bytes, encoded: bytes) -> bytes:
        header = self.version_prefix + digest + len(encoded).to_bytes(8, "big")
        return header + hashlib.sha256(header + encoded).digest() + encoded

    def _replaced(self, invalid: _Entry, key: object, digest: bytes) -> _Entry | None:
        """What is there after ``invalid`` was removed: in a directory without permission to write it stays.

        Raises ``CacheError`` for a damaged entry that cannot be moved.
        """
        try:
            return self._remove_invalid(digest)
        except OSError as error:
            if invalid.stale:
                return None
            raise CacheError(
                f"the entry of key {describe(key)} in {self.base_dir} is damaged: {invalid.damaged}; "
                f"it cannot be moved to corrupt/: {error.strerror or error}"
            ) from error

    def _remove_invalid(self, digest: bytes, *, damaged: bool = True) -> _Entry | None:
        """Remove a stale entry, or move a damaged one to ``corrupt/``; return it unless it was stale."""
        path = self._path(digest)
        with self._files.locked(self.base_dir / "lock"):
            entry = self._read(digest)
            if entry is not None and entry.stale:
                self._files.remove(path)
                return None
            if entry is not None and entry.damaged and damaged:
                self._files.make_directory(self.base_dir / "corrupt")
                self._files.rename(path, self._corrupt_path(digest))
            return entry

    def _prepare(self) -> None:
        base_dir = self.base_dir
        self._files.make_directory(base_dir)
        temporaries = base_dir / "tmp"
        self._files.make_directory(temporaries)
        if self._swept == base_dir:
            return
        oldest = time.time() - _ABANDONED_AFTER
        for path in temporaries.glob(".tmp-*"):
            if _modified(path) < oldest:
                self._files.remove(path)
        self._swept = base_dir

    def _path(self, digest: bytes) -> Path:
        return self.base_dir / digest.hex()

    def _corrupt_path(self, digest: bytes) -> Path:
        return self.base_dir / "corrupt" / digest.hex()

    @contextmanager
    def _named_errors(self, key: object, operation: str) -> Generator[None, None, None]:
        """Errors of the system, and paths that it does not have, as ``CacheError`` with key and path."""
        try:
            yield
        except CacheError:
            raise
        except (OSError, ValueError) as error:
            raise CacheError(
                f"the entry of key {describe(key)} in {str(self.base_dir)!r} cannot be {operation}: "
                f"{getattr(error, 'strerror', None) or error}"
            ) from error


def cache_directory() -> Path:
    """Directory of all local tiers: ``$KCACHE_CACHE_DIR``, or ``kcache`` in the user's cache directory."""
    directory = os.environ.get("KCACHE_CACHE_DIR")
    if directory:
        return Path(directory).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("kcache", False))


def _modified(path: Path) -> float:
    """Time of the last change in seconds since the epoch; infinite for a file that is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
