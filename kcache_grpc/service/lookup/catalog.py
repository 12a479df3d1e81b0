"""Reads what is stored under a key: its spec, the key that it is an alias of, its kernels."""

from __future__ import annotations

from kcache_grpc.errors import ArgumentError, NotFound
from kcache_grpc.service.values import KernelPage, StoredSpec
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import Namespace

#: Kernels on a page: where the caller says nothing, and at most.
_PAGE, _MOST_PAGE = 100, 1000


class Catalog:
    """Reads. Blocks; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def spec(self, namespace: Namespace, key: int) -> StoredSpec:
        """Raises ``NotFound``."""
        spec = self._store.get_spec(namespace, key)
        if spec is None:
            raise NotFound(f"namespace {namespace.name} has no key {key}", key=str(key))
        return StoredSpec(spec, self._store.resolve_key(namespace, key))

    def find_spec(self, namespace: Namespace, spec_digest: bytes) -> StoredSpec | None:
        """The spec with this digest, if it is stored."""
        spec = self._store.find_spec(namespace, spec_digest)
        return None if spec is None else StoredSpec(spec, self._store.resolve_key(namespace, spec.key))

    def kernels(self, namespace: Namespace, key: int, page_size: int, page_token: str) -> KernelPage:
        """The kernels of a key, youngest first. Raises ``NotFound``, ``ArgumentError``."""
        if key < 1:
            raise ArgumentError(f"keys are from 1, not {key}", field="key")
        before, most = _page_start(page_token), min(page_size or _PAGE, _MOST_PAGE)
        self.spec(namespace, key)
        kernels = self._store.list_kernels(namespace, key, most + 1, before)
        more = len(kernels) > most
        return KernelPage(kernels[:most], str(kernels[most - 1].id) if more else "")


def _page_start(token: str) -> int | None:
    """The id that a page begins below. Raises ``ArgumentError``."""
    if not token:
        return None
    if not (token.isascii() and token.isdigit() and len(token) < 19):
        raise ArgumentError("page_token is not one that this method gave", field="page_token")
    return int(token)
