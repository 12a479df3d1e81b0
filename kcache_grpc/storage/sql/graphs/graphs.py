"""Specs, keys and mappings on SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, bindparam, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.store import GraphStore
from kcache_grpc.storage.errors import Conflict, CorruptStore, InvalidValue, MissingReference
from kcache_grpc.storage.records import (
    AuditEvent,
    GraphDraft,
    MappingDraft,
    MappingRecord,
    Namespace,
    SpecDraft,
    SpecRecord,
    StoredGraph,
)
from kcache_grpc.storage.schema import (
    constants,
    graph_mappings,
    key_aliases,
    key_counters,
    specs,
)
from kcache_grpc.storage.sql.audit.usage_audit import insert_conflict
from kcache_grpc.storage.sql.blobs.generations import SqlGenerations, lost_constants
from kcache_grpc.storage.sql.engine.bulk import Probe, insert_once
from kcache_grpc.storage.sql.engine.group_commit import GroupCommit
from kcache_grpc.storage.sql.engine.prepared import Prepared
from kcache_grpc.storage.sql.graphs.rows import MAPPING, NS, SPEC, mapping_record, spec_record
from kcache_grpc.storage.sql.graphs.writes import Entry, GraphWriter, Written, insert_mappings
from kcache_grpc.storage.sql.graphs.writes import find_mappings as find_stored_mappings
from kcache_grpc.storage.sql.quotas import Charge, touch

_SPEC_BY_KEY = SPEC.where(specs.c.key == bindparam("key"))
_SPEC_BY_DIGEST = SPEC.where(specs.c.spec_digest == bindparam("digest"))
_KEY_EXISTS = select(specs.c.key).where(specs.c.namespace_id == NS, specs.c.key == bindparam("key"))
_COUNT = select(key_counters.c.last_key).where(key_counters.c.namespace_id == NS)

_MAPPING = MAPPING.where(graph_mappings.c.numerics == bindparam("numerics"))
_MAPPING_BY_DIGEST = _MAPPING.where(graph_mappings.c.program_digest == bindparam("digest"))
#: Those whose constants are all there.
_USABLE_BY_DIGEST = Prepared(_MAPPING_BY_DIGEST.where(~lost_constants(graph_mappings.c.id)))
_USABLE_BY_DIGESTS = Probe(
    _MAPPING.where(~lost_constants(graph_mappings.c.id)), graph_mappings.c.program_digest
)
#: Kept from collection until the transaction ends.
_CONSTANT_EXISTS = (
    select(constants.c.digest)
    .where(constants.c.namespace_id == NS, constants.c.digest == bindparam("digest"))
    .with_for_update(read=True, key_share=True)
)

_ALIAS = select(key_aliases.c.key).where(
    key_aliases.c.namespace_id == NS, key_aliases.c.alias == bindparam("alias")
)
_ALIASES = select(key_aliases.c.alias).where(
    key_aliases.c.namespace_id == NS, key_aliases.c.key.in_(bindparam("keys", expanding=True))
)
_INSERT_ALIAS = insert_once(key_aliases)


class SqlGraphs(SqlGenerations, GraphStore):
    """``GraphStore`` on SQL."""

    def put_spec(self, namespace: Namespace, spec: SpecDraft) -> SpecRecord:
        checks.spec(spec)
        known = self.find_spec(namespace, spec.spec_digest)
        return self._writes.put(namespace, Entry(spec)).spec if known is None else known

    @cached_property
    def _writes(self) -> GroupCommit[Namespace, Entry, Written]:
        """What is stored at the same time shares a transaction."""
        return GroupCommit(self._write_entries, lambda entry: entry.size)

    def _write_entries(self, namespace: Namespace, entries: Sequence[Entry]) -> list[Written]:
        def work(connection: Connection) -> list[Written]:
            now = self._clock.wall()
            return GraphWriter(connection, namespace, self._db.add_specs, self._writer, now).write(entries)

        return self._db.transact(work)

    def get_spec(self, namespace: Namespace, key: int) -> SpecRecord | None:
        if not 1 <= key <= checks.MAX_INT:
            return None
        rows = self._db.fetch(_SPEC_BY_KEY, {"ns": namespace.id, "key": key})
        return spec_record(rows[0]) if rows else None

    def find_spec(self, namespace: Namespace, spec_digest: bytes) -> SpecRecord | None:
        checks.digest("spec digest", spec_digest)
        rows = self._db.fetch(_SPEC_BY_DIGEST, {"ns": namespace.id, "digest": spec_digest})
        return spec_record(rows[0]) if rows else None

    def count_specs(self, namespace: Namespace) -> int:
        rows = self._db.fetch(_COUNT, {"ns": namespace.id})
        return rows[0].last_key if rows else 0

    def put_mapping(self, namespace: Namespace, mapping: MappingDraft) -> MappingRecord:
        checks.mapping(mapping)
        known = self.find_mapping(namespace, mapping.program_digest, mapping.numerics)
        if known is not None:
            return known

        def work(connection: Connection) -> MappingRecord:
            charge = Charge(connection, namespace)
            stored = self._insert_mapping(connection, namespace, mapping, charge)
            charge.apply()
            return stored

        return self._db.transact(work)

    def _insert_mapping(
        self, connection: Connection, namespace: Namespace, mapping: MappingDraft, charge: Charge
    ) -> MappingRecord:
        name = (mapping.program_digest, mapping.numerics)
        known = find_stored_mappings(connection, namespace, [name])
        if known:
            return known[name]
        require_key(connection, namespace, mapping.key)
        _require_constants(connection, namespace, mapping.constants)
        now = self._clock.wall()
        touch(connection, namespace, [("mapping", mapping.program_digest)], now)
        stored, _ = insert_mappings(connection, namespace, {name: mapping}, charge, now)
        return stored[name]

    def find_mapping(
        self, namespace: Namespace, program_digest: bytes, numerics: str
    ) -> MappingRecord | None:
        checks.digest("program digest", program_digest)
        checks.text("numerics", numerics)
        rows = self._db.read(_USABLE_BY_DIGEST, _mapping_name(namespace, program_digest, numerics))
        return mapping_record(rows[0]) if rows else None

    def find_mappings(
        self, namespace: Namespace, program_digests: Sequence[bytes], numerics: str
    ) -> Mapping[bytes, MappingRecord]:
        checks.digests("program digest", program_digests)
        checks.text("numerics", numerics)
        values = {"ns": namespace.id, "epoch": namespace.epoch, "numerics": numerics}
        if len(program_digests) == 1:  # a list of parameters costs more than the statement
            mapping = self.find_mapping(namespace, program_digests[0], numerics)
            return {} if mapping is None else {mapping.program_digest: mapping}
        rows = _USABLE_BY_DIGESTS.fetch(self._db, values, program_digests)
        return {row.program_digest: mapping_record(row) for row in rows}

    def put_graph(
        self, namespace: Namespace, graph: GraphDraft, event: AuditEvent | None = None
    ) -> StoredGraph:
        checks.graph(graph)
        checks.events([] if event is None else [event])
        written = self._with_placed(
            namespace,
            graph.constants,
            lambda placing: self._writes.put(namespace, Entry(graph.spec, graph, event, placing)),
        )
        assert written.mapping is not None
        return StoredGraph(written.spec, written.mapping, written.new_spec, written.new_mapping)

    def add_alias(self, namespace: Namespace, alias: int, key: int) -> int:
        checks.number("key", key, alias, least=1)
        if key >= alias:
            raise InvalidValue(f"an alias stands for a lower key: {alias} cannot stand for {key}")
        stored = self._db.transact(lambda connection: self._insert_alias(connection, namespace, alias, key))
        if stored != key:
            raise Conflict(f"key {alias} stands for {stored}, not for {key}")
        return self.resolve_key(namespace, key)

    def _insert_alias(self, connection: Connection, namespace: Namespace, alias: int, key: int) -> int:
        """The key that is stored for ``alias``; another one than ``key`` is recorded as a conflict."""
        for each in (key, alias):
            require_key(connection, namespace, each)
        name = {"ns": namespace.id, "alias": alias}
        now = self._clock.wall()
        stored = connection.execute(_ALIAS, name).scalar()
        if stored is None:
            values = {"namespace_id": namespace.id, "alias": alias, "key": key, "created_at": now}
            connection.execute(_INSERT_ALIAS, values)
            stored = connection.execute(_ALIAS, name).scalar_one()
        if stored != key:
            numbers = (number.to_bytes(8, "big") for number in (alias, stored, key))
            insert_conflict(connection, namespace, "alias", *numbers, now=now)
        return int(stored)

    def list_aliases(self, namespace: Namespace, key: int) -> tuple[int, ...]:
        aliases: list[int] = []
        latest = [key] if 1 <= key <= checks.MAX_INT else []
        while latest:
            above = min(latest)
            latest = [row.alias for row in self._db.fetch(_ALIASES, {"ns": namespace.id, "keys": latest})]
            if latest and min(latest) <= above:
                raise CorruptStore(f"keys {min(latest)} and {above} stand for each other: restore a backup")
            aliases += latest
        return tuple(sorted(aliases))

    def resolve_key(self, namespace: Namespace, key: int) -> int:
        while 1 <= key <= checks.MAX_INT:
            rows = self._db.fetch(_ALIAS, {"ns": namespace.id, "alias": key})
            if not rows:
                break
            if rows[0].key >= key:
                raise CorruptStore(f"keys {key} and {rows[0].key} stand for each other: restore a backup")
            key = rows[0].key
        return key


def require_key(connection: Connection, namespace: Namespace, key: int) -> None:
    """Raises ``MissingReference`` unless a spec has that key."""
    if connection.execute(_KEY_EXISTS, {"ns": namespace.id, "key": key}).first() is None:
        raise MissingReference(f"namespace {namespace.name!r} has no spec {key}")


def _require_constants(connection: Connection, namespace: Namespace, digests: Sequence[bytes]) -> None:
    for digest in digests:
        if connection.execute(_CONSTANT_EXISTS, {"ns": namespace.id, "digest": digest}).first() is None:
            raise MissingReference(f"constant {digest.hex()} is not stored")


def _mapping_name(namespace: Namespace, program_digest: bytes, numerics: str) -> dict[str, Any]:
    return {
        "ns": namespace.id,
        "epoch": namespace.epoch,
        "digest": program_digest,
        "numerics": numerics,
    }
