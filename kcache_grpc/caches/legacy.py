"""Reads the entries that ``torch._inductor.cache.OnDiskCache`` wrote to a directory; writes none.

An entry of key ``k`` is the file ``sha256(pickle.dumps(k)).hexdigest()[:32]``: 4 bytes of version prefix and
a pickle of the value. The original writes it in place, under the lock ``locks/<first 4 digits>.lock``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kcache_grpc.caches import pickled
from kcache_grpc.caches.encoding import describe
from kcache_grpc.caches.files import Files
from kcache_grpc.errors import CacheError

#: ``OnDiskCache.version`` of the original, in every release so far.
_VERSION = 0
_PREFIX = hashlib.sha256(str(_VERSION).encode()).digest()[:4]


class LegacyEntries:
    """The entries of the original, which are never changed or removed. Other versions do not count."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def get(self, base_dir: Path, key: object) -> Any:
        """The value of ``key``, or ``None``. Raises ``CacheError``, which names the key, and ``OSError``."""
        for path in _paths(base_dir, key):
            data = self._read(path)
            if data is None or not data.startswith(_PREFIX):
                continue
            try:
                return pickled.loads(data[len(_PREFIX) :])
            except CacheError as error:
                raise CacheError(
                    f"the entry of key {describe(key)} in {path} was not written by this program "
                    f"and cannot be read: {error.message}; remove it, or insert the key"
                ) from error
        return None

    def contains(self, base_dir: Path, key: object) -> bool:
        """Whether ``get`` returns a value. Raises ``OSError``."""
        try:
            return self.get(base_dir, key) is not None
        except CacheError:
            return False

    def _read(self, path: Path) -> bytes | None:
        lock = path.parent / "locks" / f"{path.name[:4]}.lock"
        if not lock.exists():
            return self._files.read(path)
        with self._files.locked(lock, shared=True):
            return self._files.read(path)


def _paths(base_dir: Path, key: object) -> Iterator[Path]:
    """The files that the original may use for ``key``: one for each protocol."""
    for protocol in pickled.PROTOCOLS:
        name = pickled.dumps_key(key, protocol)
        if name is not None:
            yield base_dir / hashlib.sha256(name).hexdigest()[:32]
