"""One object store: put, read, list, delete. Foreign errors become those of the store here, nowhere else.

A circuit breaker limits what an unresponsive object store costs: the time of one thread, not of all.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kcache_grpc.storage.errors import StorageError, StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

#: Seconds after which a failure was a wait. Rejections take about one.
_LONG = 5.0
T = TypeVar("T")
#: All objects of bytes lie below it.
DIRECTORY = "objects"
#: Says whose objects these are.
MARKER = "kcache-store.json"
#: Written to learn what time it is there.
CLOCK = "kcache-clock"
#: Most bytes of one request.
_SPAN = 16 << 20
#: What LocalFileSystem of object_store writes before it renames.
_PART = re.compile(r"[0-9a-f]{64}-[0-9a-f]{16}#[0-9]+")
#: Signatures of Azure are in the URL.
_QUERY = re.compile(r"\?\S+")


class CircuitBreaker:
    """Opens after a call that took long to fail: one call at a time tries again, others fail at once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._trying = False
        #: Whether the last call that ended had waited in vain.
        self.silent = False

    @contextmanager
    def call(self) -> Generator[None]:
        """Around a call."""
        tries = self._enter()
        began = time.monotonic()
        try:
            yield
            self.silent = False
        except StoreUnavailable:
            if time.monotonic() - began > _LONG:
                self.silent = True
            raise
        finally:
            if tries:
                self._trying = False

    def _enter(self) -> bool:
        with self._lock:
            if self.silent and self._trying:
                raise StoreUnavailable(f"{self._url} does not answer; another call is trying it")
            self._trying = self._trying or self.silent
            return self.silent


class Lost(StorageError):
    """The object is gone, or it is not what was put: a new generation must take its place."""


@dataclass(frozen=True)
class ObjectStat:
    """An object; ``modified`` is in UTC microseconds on the clock of the object store."""

    name: str
    size: int
    modified: int


@dataclass(frozen=True)
class Owner:
    """Whose objects these are: the id of a database, and one of this object store."""

    store_id: str
    objects_id: str


class ObjectStore:
    """Objects by name, below the URL. Safe to use from any thread, but not in the child of a fork.

    Every call raises ``StoreUnavailable`` if the object store rejects a request, hangs or has been replaced.
    """

    def __init__(self, url: str, backend: Backend, inline_bytes: int, directory: Path | None = None) -> None:
        self.url = url
        self.inline_bytes = inline_bytes
        self._backend = backend
        self._directory = directory
        self._process = os.getpid()
        self._owner: Owner | None = None
        self._breaker = CircuitBreaker(url)

    def put(self, name: str, content: bytes) -> None:
        """Store an object whole, durably. Its name was never used before."""
        import obstore

        self._call("put", name, lambda: obstore.put(self._backend, name, content))
        if self._directory is not None:
            self._flush(self._directory / name)
        status = self.stat(name)
        if status is None or status.size != len(content):
            there = "nothing" if status is None else f"{status.size} bytes"
            raise StoreUnavailable(f"{self.url} took {name} of {len(content)} bytes and has {there}")

    def read(self, name: str, start: int, end: int, size: int) -> bytes:
        """Bytes from ``start`` to ``end`` of an object of ``size`` bytes, by requests for ranges.

        Raises ``Lost`` for an object that is gone or has another size.
        """
        parts = [
            self._range(name, at, min(at + _SPAN, end), size) for at in range(start, end, _SPAN) or (start,)
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _range(self, name: str, start: int, end: int, size: int) -> bytes:
        import obstore

        if end <= start:  # no request has an empty range
            self.require(name, size)
            return b""
        for _ in range(2):
            try:
                content = self._call(
                    "read", name, lambda: bytes(obstore.get_range(self._backend, name, start=start, end=end))
                )
            except StoreUnavailable:
                if not self._breaker.silent:
                    with suppress(StoreUnavailable):
                        self.require(name, size)  # rejected because it is shorter?
                raise
            if content is not None and len(content) == end - start:
                return content
            self.require(name, size)
        raise StoreUnavailable(f"could not read {name} at {self.url}: it sends other bytes than asked for")

    def require(self, name: str, size: int) -> None:
        """Raises ``Lost`` unless the object is there and has ``size`` bytes."""
        status = self.stat(name)
        if status is not None and status.size == size:
            return
        self.check()
        if status is None:
            raise Lost("the object is gone")
        raise Lost(f"the object has {status.size} bytes instead of {size}")

    def stat(self, name: str) -> ObjectStat | None:
        """Size and time of an object, ``None`` when there is none."""
        import obstore

        metadata = self._call("look at", name, lambda: obstore.head(self._backend, name))
        if metadata is None:
            return None
        return ObjectStat(name, metadata["size"], _microseconds(metadata["last_modified"]))

    def delete(self, name: str) -> None:
        """Delete an object; one that is not there is fine."""
        import obstore

        self._call("delete", name, lambda: obstore.delete(self._backend, name))

    def pages(self) -> Iterator[list[ObjectStat]]:
        """All objects of bytes, some hundred at a time."""
        import obstore

        listed: Any = obstore  # its stubs speak of Arrow, which is not installed
        stream = self._call("list", DIRECTORY, lambda: listed.list(self._backend, DIRECTORY, chunk_size=500))
        while stream is not None:
            page = self._call("list", DIRECTORY, lambda: next(stream, None))
            if page is None:
                return
            yield [
                ObjectStat(each["path"], each["size"], _microseconds(each["last_modified"])) for each in page
            ]

    def unfinished(self, before: int) -> list[ObjectStat]:
        """Return temporary files that killed writers left in a directory; the library does not list these."""
        if self._directory is None:
            return []
        uploads: list[ObjectStat] = []
        for path in (self._directory / DIRECTORY).glob("*/*#*"):
            with suppress(FileNotFoundError):  # its writer ends meanwhile
                status = path.stat()
                changed = status.st_mtime_ns // 1000
                if _PART.fullmatch(path.name) and changed < before:
                    uploads.append(
                        ObjectStat(str(path.relative_to(self._directory)), status.st_size, changed)
                    )
        return uploads

    def remove_unfinished(self, part: ObjectStat) -> None:
        """Delete one of ``unfinished``."""
        assert self._directory is not None
        (self._directory / part.name).unlink(missing_ok=True)

    def now(self) -> int:
        """What the object store's clock says, in UTC microseconds: objects are as old as it thinks."""
        self.put(CLOCK, b"")
        status = self.stat(CLOCK)
        if status is None:
            raise StoreUnavailable(f"{self.url} lost {CLOCK}")
        return status.modified

    def owner(self) -> Owner | None:
        """Who claimed this place, ``None`` while nobody did. ``StoreUnavailable`` for a foreign marker."""
        import obstore

        content = self._call("read", MARKER, lambda: bytes(obstore.get(self._backend, MARKER).bytes()))
        return None if content is None else self._parse(content)

    def claim(self, owner: Owner) -> Owner:
        """Take this place for a database unless it is taken; whose it is now."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        content = json.dumps({"kcache": 1, "store": owner.store_id, "objects": owner.objects_id}).encode()

        def create() -> bool:
            try:
                obstore.put(self._backend, MARKER, content, mode="create")
            except AlreadyExistsError:
                return False
            return True

        if self._call("put", MARKER, create) is None:
            raise StoreUnavailable(f"{self.url} does not exist")
        if self._directory is not None:
            self._flush(self._directory / MARKER)
        actual = self.owner()
        if actual is None:
            raise StoreUnavailable(f"{self.url} took {MARKER} and does not have it")
        return actual

    def bind(self, owner: Owner) -> None:
        """Whose place it must be from now on; see ``check``."""
        self._owner = owner

    @property
    def id(self) -> str:
        """Names this place for good. Once it is bound."""
        assert self._owner is not None
        return self._owner.objects_id

    def check(self) -> None:
        """Raises ``StoreUnavailable`` unless this is still the place that was bound: a disk that is not
        mounted, or a bucket that was emptied, is no reason to give up every object.
        """
        owner = self.owner()
        if owner is None or owner != self._owner:
            raise StoreUnavailable(
                f"{self.url} is not the object store that this store was opened with: {MARKER} is "
                f"{'gone' if owner is None else 'another'}; is the disk mounted, the bucket the right one?"
            )

    def _parse(self, content: bytes) -> Owner:
        try:
            fields = json.loads(content)
            return Owner(str(fields["store"]), str(fields["objects"]))
        except (ValueError, TypeError, KeyError) as error:
            raise StoreUnavailable(f"{self.url}/{MARKER} is damaged or not of kcache") from error

    def _call(self, verb: str, name: str, call: Callable[[], T]) -> T | None:
        """Return the result; None for a missing object. The library has already retried."""
        from obstore.exceptions import BaseError

        if self._process != os.getpid():
            raise StoreUnavailable(
                f"{self.url} cannot be used in a forked process: its connections are the parent's"
            )
        with self._breaker.call():
            try:
                return call()
            except FileNotFoundError:
                return None
            except (BaseError, OSError, ValueError) as error:
                self._fail(verb, name, error)

    def _fail(self, verb: str, name: str, error: Exception) -> NoReturn:
        reason = _QUERY.sub("?...", str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise StoreUnavailable(f"could not {verb} {name} at {self.url}: {reason[:400]}") from error

    def _flush(self, path: Path) -> None:
        """To the disk: the file, and the directories that lead to it."""
        assert self._directory is not None
        try:
            for each in (path, *path.relative_to(self._directory).parents):
                file = os.open(self._directory / each, os.O_RDONLY)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be written to the disk: {error.strerror}") from error


def _microseconds(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)
