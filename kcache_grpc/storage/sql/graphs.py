"""Specs, keys and mappings on SQL."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract import GraphStore
from kcache_grpc.storage.errors import Conflict, CorruptStore, InvalidValue, MissingReference
from kcache_grpc.storage.objects.placing import Placing
from kcache_grpc.storage.records import (
    AuditEvent,
    GraphDraft,
    MappingDraft,
    MappingRecord,
    Namespace,
    SignedBytes,
    SpecDraft,
    SpecRecord,
    StoredGraph,
)
from kcache_grpc.storage.schema import (
    constants,
    graph_mappings,
    key_aliases,
    key_counters,
    mapping_constants,
    specs,
)
from kcache_grpc.storage.sql.blobs import store_constants
from kcache_grpc.storage.sql.database import Row
from kcache_grpc.storage.sql.generations import SqlGenerations, lost_constants
from kcache_grpc.storage.sql.ledger import insert_conflict, insert_events
from kcache_grpc.storage.sql.limits import Charge, touch
from kcache_grpc.storage.sql.part import batches, insert_once

_NS: BindParameter[int] = bindparam("ns")
_SPEC = select(
    specs.c.key,
    specs.c.spec_digest,
    specs.c.text,
    specs.c.numerics,
    specs.c.canonicalizer,
    specs.c.family,
    specs.c.created_at,
).where(specs.c.namespace_id == _NS)
_SPEC_BY_KEY = _SPEC.where(specs.c.key == bindparam("key"))
_SPEC_BY_DIGEST = _SPEC.where(specs.c.spec_digest == bindparam("digest"))
_KEY_EXISTS = select(specs.c.key).where(specs.c.namespace_id == _NS, specs.c.key == bindparam("key"))
_COUNT = select(key_counters.c.last_key).where(key_counters.c.namespace_id == _NS)

_MAPPING = select(
    graph_mappings.c.program_digest,
    graph_mappings.c.numerics,
    graph_mappings.c.key,
    graph_mappings.c.binding,
    graph_mappings.c.signature,
    graph_mappings.c.epoch,
    graph_mappings.c.created_at,
).where(
    graph_mappings.c.namespace_id == _NS,
    graph_mappings.c.epoch == bindparam("epoch"),
    graph_mappings.c.numerics == bindparam("numerics"),
)
_MAPPING_BY_DIGEST = _MAPPING.where(graph_mappings.c.program_digest == bindparam("digest"))
#: Those whose constants are all there.
_USABLE_BY_DIGEST = _MAPPING_BY_DIGEST.where(~lost_constants(graph_mappings.c.id))
_USABLE_BY_DIGESTS = _MAPPING.where(
    graph_mappings.c.program_digest.in_(bindparam("digests", expanding=True)),
    ~lost_constants(graph_mappings.c.id),
)
_INSERT_MAPPING = insert_once(graph_mappings).returning(graph_mappings.c.id)
_INSERT_MAPPING_CONSTANTS = insert_once(mapping_constants)
#: Kept from collection until the transaction ends.
_CONSTANT_EXISTS = (
    select(constants.c.digest)
    .where(constants.c.namespace_id == _NS, constants.c.digest == bindparam("digest"))
    .with_for_update(read=True, key_share=True)
)

_ALIAS = select(key_aliases.c.key).where(
    key_aliases.c.namespace_id == _NS, key_aliases.c.alias == bindparam("alias")
)
_ALIASES = select(key_aliases.c.alias).where(
    key_aliases.c.namespace_id == _NS, key_aliases.c.key.in_(bindparam("keys", expanding=True))
)
_INSERT_ALIAS = insert_once(key_aliases)


class SqlGraphs(SqlGenerations, GraphStore):
    """``GraphStore`` on SQL."""

    def put_spec(self, namespace: Namespace, spec: SpecDraft) -> SpecRecord:
        checks.spec(spec)
        found = self.find_spec(namespace, spec.spec_digest)
        if found is not None:
            return found

        def work(connection: Connection) -> SpecRecord:
            charge = Charge(connection, namespace)
            stored, _ = self._insert_spec(connection, namespace, spec, charge)
            charge.settle()
            return stored

        return self._db.transact(work)

    def _insert_spec(
        self, connection: Connection, namespace: Namespace, spec: SpecDraft, charge: Charge
    ) -> tuple[SpecRecord, bool]:
        """The spec, and whether it is new: then the namespace's counter is locked from here on."""
        values = _spec_values(namespace, spec, self._clock.wall())
        key = self._db.add_spec(connection, values)
        if key is not None:
            charge.add("specs")
            return _spec_draft_record(spec, key, values["created_at"]), True
        found = _find_spec(connection, namespace, spec.spec_digest)
        if found is None:
            raise MissingReference(f"namespace {namespace.name!r} is not stored")
        return found, False

    def get_spec(self, namespace: Namespace, key: int) -> SpecRecord | None:
        if not 1 <= key <= checks.MAX_INT:
            return None
        rows = self._db.fetch(_SPEC_BY_KEY, {"ns": namespace.id, "key": key})
        return _spec(rows[0]) if rows else None

    def find_spec(self, namespace: Namespace, spec_digest: bytes) -> SpecRecord | None:
        checks.digest("spec digest", spec_digest)
        rows = self._db.fetch(_SPEC_BY_DIGEST, {"ns": namespace.id, "digest": spec_digest})
        return _spec(rows[0]) if rows else None

    def count_specs(self, namespace: Namespace) -> int:
        rows = self._db.fetch(_COUNT, {"ns": namespace.id})
        return rows[0].last_key if rows else 0

    def put_mapping(self, namespace: Namespace, mapping: MappingDraft) -> MappingRecord:
        checks.mapping(mapping)
        found = self.find_mapping(namespace, mapping.program_digest, mapping.numerics)
        if found is not None:
            return found

        def work(connection: Connection) -> MappingRecord:
            charge = Charge(connection, namespace)
            stored, _ = self._insert_mapping(connection, namespace, mapping, charge)
            charge.settle()
            return stored

        return self._db.transact(work)

    def _insert_mapping(
        self, connection: Connection, namespace: Namespace, mapping: MappingDraft, charge: Charge
    ) -> tuple[MappingRecord, bool]:
        name = _mapping_name(namespace, mapping.program_digest, mapping.numerics)
        found = connection.execute(_MAPPING_BY_DIGEST, name).first()
        if found is not None:
            return mapping_record(found), False
        require_key(connection, namespace, mapping.key)
        _require_constants(connection, namespace, mapping.constants)
        touch(connection, namespace, [("mapping", mapping.program_digest)], self._clock.wall())
        return self._add_mapping(connection, namespace, mapping, charge)

    def _add_mapping(
        self, connection: Connection, namespace: Namespace, mapping: MappingDraft, charge: Charge
    ) -> tuple[MappingRecord, bool]:
        """Insert a mapping whose key and constants are there; the stored one, and whether it is this."""
        values = _mapping_values(namespace, mapping, self._clock.wall())
        mapping_id = connection.execute(_INSERT_MAPPING, values).scalar()
        if mapping_id is None:
            name = _mapping_name(namespace, mapping.program_digest, mapping.numerics)
            return mapping_record(connection.execute(_MAPPING_BY_DIGEST, name).one()), False
        charge.add("mappings")
        if mapping.constants:
            rows = [
                {
                    "mapping_id": mapping_id,
                    "position": position,
                    "namespace_id": namespace.id,
                    "digest": digest,
                }
                for position, digest in enumerate(mapping.constants)
            ]
            connection.execute(_INSERT_MAPPING_CONSTANTS, rows)
        stored = MappingRecord(
            mapping.program_digest,
            mapping.numerics,
            mapping.key,
            mapping.binding,
            namespace.epoch,
            values["created_at"],
        )
        return stored, True

    def find_mapping(
        self, namespace: Namespace, program_digest: bytes, numerics: str
    ) -> MappingRecord | None:
        checks.digest("program digest", program_digest)
        checks.text("numerics", numerics)
        rows = self._db.fetch(_USABLE_BY_DIGEST, _mapping_name(namespace, program_digest, numerics))
        return mapping_record(rows[0]) if rows else None

    def find_mappings(
        self, namespace: Namespace, program_digests: Sequence[bytes], numerics: str
    ) -> Mapping[bytes, MappingRecord]:
        checks.digests("program digest", program_digests)
        checks.text("numerics", numerics)
        values = {"ns": namespace.id, "epoch": namespace.epoch, "numerics": numerics}
        if len(program_digests) == 1:  # a list of parameters costs more than the statement
            one = self.find_mapping(namespace, program_digests[0], numerics)
            return {} if one is None else {one.program_digest: one}
        found: dict[bytes, MappingRecord] = {}
        for batch in batches(program_digests):
            for row in self._db.fetch(_USABLE_BY_DIGESTS, {**values, "digests": batch}):
                found[row.program_digest] = mapping_record(row)
        return found

    def put_graph(
        self, namespace: Namespace, graph: GraphDraft, event: AuditEvent | None = None
    ) -> StoredGraph:
        checks.graph(graph)
        checks.events([] if event is None else [event])
        return self._transact_with(
            namespace,
            graph.constants,
            lambda connection, placing: self._insert_graph(connection, namespace, graph, event, placing),
        )

    def _insert_graph(
        self,
        connection: Connection,
        namespace: Namespace,
        graph: GraphDraft,
        event: AuditEvent | None,
        placing: Placing,
    ) -> StoredGraph:
        charge = Charge(connection, namespace)
        # Nobody waits for the counter while this is done.
        store_constants(connection, namespace, graph.constants, self._clock.wall(), charge, placing)
        name = _mapping_name(namespace, graph.program_digest, graph.spec.numerics)
        found = connection.execute(_MAPPING_BY_DIGEST, name).first()
        touch(connection, namespace, [("mapping", graph.program_digest)], self._clock.wall())
        spec, new_spec = _find_spec(connection, namespace, graph.spec.spec_digest), False
        if spec is None:
            spec, new_spec = self._insert_spec(connection, namespace, graph.spec, charge)
        if found is not None:
            mapping, new_mapping = mapping_record(found), False
        else:
            digests = tuple(constant.digest for constant in graph.constants)
            draft = MappingDraft(
                graph.program_digest, graph.spec.numerics, spec.key, graph.bind(spec.key), digests
            )
            mapping, new_mapping = self._add_mapping(connection, namespace, draft, charge)
        if event is not None and (new_spec or new_mapping):
            insert_events(
                connection, namespace, [replace(event, key=spec.key)], self._writer, self._clock.wall()
            )
        charge.settle()
        return StoredGraph(spec, mapping, new_spec, new_mapping)

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
        found: list[int] = []
        latest = [key] if 1 <= key <= checks.MAX_INT else []
        while latest:
            above = min(latest)
            latest = [row.alias for row in self._db.fetch(_ALIASES, {"ns": namespace.id, "keys": latest})]
            if latest and min(latest) <= above:
                raise CorruptStore(f"keys {min(latest)} and {above} stand for each other: restore a backup")
            found += latest
        return tuple(sorted(found))

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


def _find_spec(connection: Connection, namespace: Namespace, digest: bytes) -> SpecRecord | None:
    row = connection.execute(_SPEC_BY_DIGEST, {"ns": namespace.id, "digest": digest}).first()
    return None if row is None else _spec(row)


def _spec(row: Row) -> SpecRecord:
    record = SpecRecord(
        row.key, row.spec_digest, row.text, row.numerics, row.canonicalizer, row.family, row.created_at
    )
    if hashlib.sha256(record.text.encode()).digest() != record.spec_digest:
        raise CorruptStore(f"the text of spec {record.key} does not hash to its digest")
    return record


def _spec_draft_record(spec: SpecDraft, key: int, created_at: int) -> SpecRecord:
    return SpecRecord(
        key, spec.spec_digest, spec.text, spec.numerics, spec.canonicalizer, spec.family, created_at
    )


def _spec_values(namespace: Namespace, spec: SpecDraft, now: int) -> dict[str, Any]:
    return {
        "namespace_id": namespace.id,
        "spec_digest": spec.spec_digest,
        "numerics": spec.numerics,
        "canonicalizer": spec.canonicalizer,
        "family": spec.family,
        "text_size": len(spec.text.encode()),
        "created_at": now,
        "text": spec.text,
    }


def _mapping_name(namespace: Namespace, program_digest: bytes, numerics: str) -> dict[str, Any]:
    return {
        "ns": namespace.id,
        "epoch": namespace.epoch,
        "digest": program_digest,
        "numerics": numerics,
    }


def mapping_record(row: Row) -> MappingRecord:
    return MappingRecord(
        row.program_digest,
        row.numerics,
        row.key,
        SignedBytes(row.binding, row.signature),
        row.epoch,
        row.created_at,
    )


def _mapping_values(namespace: Namespace, mapping: MappingDraft, now: int) -> dict[str, Any]:
    return {
        "namespace_id": namespace.id,
        "epoch": namespace.epoch,
        "program_digest": mapping.program_digest,
        "numerics": mapping.numerics,
        "key": mapping.key,
        "created_at": now,
        "binding": mapping.binding.payload,
        "signature": mapping.binding.signature,
    }
