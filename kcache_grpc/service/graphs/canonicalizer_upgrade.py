"""Canonicalizer upgrades: what becomes of keys when the canonicalizer changes.

A newer canonicalizer writes other specs. Mappings of the old one are disowned, by a rising epoch; programs
come again, get the keys of their new specs, and the old keys and the new ones are joined by aliases.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import StorageError
from kcache_grpc.storage.records import MappingRecord, Namespace, SpecRecord

logger = logging.getLogger("kcache.service")

#: Epochs before the present one in which the key that a program had is looked for.
_EPOCHS_BACK = 8


class CanonicalizerUpgrade:
    """For the canonicalizer of one service. Blocks; thread-safe."""

    def __init__(self, store: Store, canonicalizer: int) -> None:
        self._store = store
        self._canonicalizer = canonicalizer

    def enter(self, namespace: Namespace) -> Namespace:
        """The namespace in an epoch of this canonicalizer: the next one, if an older one wrote the last spec.

        A store that cannot say so is left as it is: lookups leave out what another canonicalizer wrote.
        """
        try:
            last = self._store.count_specs(namespace)
            spec = self._store.get_spec(namespace, last) if last else None
            if spec is None or spec.canonicalizer >= self._canonicalizer:
                return namespace
            raised = self._store.raise_epoch(namespace)
        except StorageError as error:
            logger.warning("the canonicalizer of namespace %s is not known: %s", namespace.name, error)
            return namespace
        logger.info(
            "namespace %s has specs of canonicalizer %d, this one is %d: its epoch is %d now",
            namespace.name, spec.canonicalizer, self._canonicalizer, raised.epoch,
        )  # fmt: skip
        return raised

    def join(self, namespace: Namespace, program_digest: bytes, numerics: str, spec: SpecRecord) -> None:
        """Makes one of the keys that a program had under an older canonicalizer and has now.

        The lower stays, the other becomes an alias. Nothing happens where that would join two specs of the
        present canonicalizer: they are two computations, which an older one took for one. Never raises.
        """
        try:
            before = self._before(namespace, program_digest, numerics)
            old = None if before is None else self._store.get_spec(namespace, before.key)
            if old is None or not old.canonicalizer < spec.canonicalizer == self._canonicalizer:
                return
            roots = {self._store.resolve_key(namespace, key) for key in (old.key, spec.key)}
            if len(roots) == 1:
                return
            if self._is_split(namespace, roots):
                logger.error(
                    "key %d of namespace %s was given to programs that are not the same",
                    old.key,
                    namespace.name,
                )
                return
            self._store.add_alias(namespace, max(roots), min(roots))
        except StorageError as error:
            logger.warning("a key of canonicalizer %d was not joined: %s", self._canonicalizer, error)

    def _before(self, namespace: Namespace, program_digest: bytes, numerics: str) -> MappingRecord | None:
        for epoch in range(namespace.epoch - 1, max(0, namespace.epoch - 1 - _EPOCHS_BACK), -1):
            mapping = self._store.find_mapping(replace(namespace, epoch=epoch), program_digest, numerics)
            if mapping is not None:
                return mapping
        return None

    def _is_split(self, namespace: Namespace, roots: set[int]) -> bool:
        """Whether more than one spec of the present canonicalizer would stand for one key."""
        keys = roots.union(*(self._store.list_aliases(namespace, root) for root in roots))
        specs = (self._store.get_spec(namespace, key) for key in keys)
        return sum(spec is not None and spec.canonicalizer == self._canonicalizer for spec in specs) > 1
