"""A cache on a kcache server, shared by all of its clients."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from kcache_grpc.caches.base import AsyncCache, Key, Value
from kcache_grpc.caches.encoding import decode, describe, encode_value, key_digest
from kcache_grpc.client.client import Client
from kcache_grpc.client.config import Tls
from kcache_grpc.client.requests.blob_cache import MOST_KEYS, BlobDraft, BlobSink
from kcache_grpc.errors import CacheError, IntegrityError, KcacheError

#: Bytes that are read from a file at a time.
_PIECE_BYTES = 1 << 20
#: Bytes of encoded values that one call stores.
_CALL_BYTES = 64 << 20


class RemoteCache(AsyncCache[Key, Value]):
    """Entries in the blob namespace of a kcache server; the server never interprets a value.

    Args:
        service: a ``kcache.Client``, whose connection and namespace are used and which stays open; or an
            address, for which a client is made that ``close`` ends; or ``None`` for ``$KCACHE_ADDR`` or the
            embedded service.
        namespace: key space of the entries; only with an address. ``None``: ``$KCACHE_NAMESPACE`` or
            ``"default"``.
        token: bearer token, as of ``kcache.Client``; only with an address.
        tls: authorities to trust, as of ``kcache.Client``; only with an address.
        timeout: seconds that one call may take, as of ``kcache.Client``; only with an address.

    Methods raise ``CacheError`` for unsupported types and damaged entries, ``Unavailable`` when the server
    cannot be reached, and the other errors of ``kcache.KcacheError``. ``TieredCache(...,
    skip_unavailable=True)`` goes on without the server.
    """

    def __init__(
        self,
        service: Client | str | None = None,
        *,
        namespace: str | None = None,
        token: str | None = None,
        tls: Tls = None,
        timeout: float | None = None,
    ) -> None:
        self._owned = not isinstance(service, Client)
        self._client = (
            service
            if isinstance(service, Client)
            else Client(service, namespace=namespace, token=token, tls=tls, timeout=timeout)
        )

    def get(self, key: Key) -> Value | None:
        """Returns the value of ``key``, or ``None``. See ``Cache.get``."""
        try:
            content = self._client.get_blob(key_digest(key))
        except IntegrityError as error:
            raise _damaged(key, error) from error
        return None if content is None else _decoded(key, content)

    def insert(self, key: Key, value: Value) -> bool:
        """Adds an entry unless the key exists. See ``Cache.insert``."""
        return self.insert_many([(key, value)])[0]

    def get_many(self, keys: Sequence[Key]) -> list[Value | None]:
        """The values of ``keys``, in order: one call for up to 4096 of them."""
        names = [key_digest(key) for key in keys]
        contents: dict[bytes, bytes] = {}
        unique = list(dict.fromkeys(names))
        for start in range(0, len(unique), MOST_KEYS):
            contents.update(self._read(unique[start : start + MOST_KEYS], keys, names))
        return [
            _decoded(key, contents[name]) if name in contents else None
            for key, name in zip(keys, names, strict=True)
        ]

    def insert_many(self, items: Iterable[tuple[Key, Value]], seconds: float = 0.0) -> list[bool]:
        """Adds entries whose keys do not exist; whether each was added.

        ``seconds``: time that producing each value took, which the server counts as saved with each hit. Of a
        key that comes twice the first value counts.
        """
        drafts = [_draft(key, encode_value(value), seconds) for key, value in items]
        first: dict[bytes, int] = {}
        for position, draft in enumerate(drafts):
            first.setdefault(draft.key, position)
        added: set[int] = set()
        for group in _groups([(drafts[position], position) for position in first.values()]):
            outcomes = self._client.put_blobs([draft for draft, _ in group])
            added.update(
                position for (_, position), outcome in zip(group, outcomes, strict=True) if outcome.inserted
            )
        return [position in added for position in range(len(drafts))]

    def insert_file(self, key: Key, path: str | os.PathLike[str], seconds: float = 0.0) -> bool:
        """Adds the bytes of a file as an entry, without holding them in memory. See ``insert``.

        Entries of files are read with ``get_file``; ``get`` raises ``CacheError`` for them.
        """
        digest, size = hashlib.sha256(), 0
        for piece in _pieces(path):
            digest.update(piece)
            size += len(piece)
        draft = BlobDraft(key_digest(key), digest.digest(), size, lambda: _pieces(path), _label(key), seconds)
        return self._client.put_blobs([draft])[0].inserted

    def get_file(self, key: Key, path: str | os.PathLike[str]) -> bool:
        """Writes the bytes of an entry to ``path``, which appears whole or not at all.

        Returns whether the key exists; if not, ``path`` is left as it is.
        """
        target = Path(path)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            temporary = Path(file.name)
            try:
                found = self._found(key, file)
                file.flush()
                os.fsync(file.fileno())
                if found:
                    temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
        return found

    def close(self) -> None:
        """Ends the connection, unless it belongs to a client that was passed."""
        if self._owned:
            self._client.close()

    def __enter__(self) -> RemoteCache[Key, Value]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteCache({self._client!r})"

    def _found(self, key: Key, file: IO[bytes]) -> bool:
        """Writes the bytes of an entry to ``file``; whether the key exists."""
        try:
            return bool(self._client.get_blobs([key_digest(key)], lambda _: _rewound(file)))
        except IntegrityError as error:
            raise _damaged(key, error) from error

    def _read(
        self, names: Sequence[bytes], keys: Sequence[Key], of_keys: Sequence[bytes]
    ) -> Mapping[bytes, bytes]:
        buffers: dict[int, list[bytes]] = {}

        def open_sink(index: int) -> BlobSink:
            buffers[index] = []
            return BlobSink(buffers[index].append)

        try:
            found = self._client.get_blobs(names, open_sink)
        except IntegrityError as error:
            key = keys[of_keys.index(names[max(buffers, default=0)])]
            raise _damaged(key, error) from error
        # Joining the only part of a value copies nothing.
        return {names[index]: b"".join(buffers[index]) for index in found}


def _decoded(key: object, content: bytes | memoryview) -> Any:
    try:
        value = decode(content)
        if value is None:
            raise CacheError("its value is None")
    except CacheError as error:
        raise _damaged(key, error) from error
    return value


def _damaged(key: object, error: KcacheError) -> CacheError:
    return CacheError(f"the value of {describe(key)} is damaged: {error.message}")


def _draft(key: object, content: bytes, seconds: float) -> BlobDraft:
    digest = hashlib.sha256(content).digest()
    return BlobDraft(key_digest(key), digest, len(content), lambda: (content,), _label(key), seconds)


def _label(key: object) -> str:
    return describe(key).encode("utf-8", "replace")[:120].decode("utf-8", "ignore").replace("\0", "")


def _groups(drafts: Sequence[tuple[BlobDraft, int]]) -> Iterator[list[tuple[BlobDraft, int]]]:
    """Drafts that one call stores."""
    group: list[tuple[BlobDraft, int]] = []
    size = 0
    for draft, position in drafts:
        if group and (len(group) == MOST_KEYS or size + draft.size > _CALL_BYTES):
            yield group
            group, size = [], 0
        group.append((draft, position))
        size += draft.size
    if group:
        yield group


def _pieces(path: str | os.PathLike[str]) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _rewound(file: IO[bytes]) -> BlobSink:
    """The file from its beginning: a call that is repeated sends everything again."""
    file.seek(0)
    file.truncate()
    return BlobSink(file.write)
