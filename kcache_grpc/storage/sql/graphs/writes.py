"""Writing graphs: any number of them in one transaction, each as if it came alone, in their order.

The order of the locks is the same for all writers: bytes, usage, the counter of keys, mappings, quotas; and
rows of one kind by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from kcache_grpc.storage.errors import MissingReference, QuotaExceeded
from kcache_grpc.storage.objects.placing import Placing
from kcache_grpc.storage.records import (
    AuditEvent,
    Blob,
    GraphDraft,
    MappingDraft,
    MappingRecord,
    Namespace,
    SpecDraft,
    SpecRecord,
)
from kcache_grpc.storage.schema import graph_mappings, mapping_constants, specs
from kcache_grpc.storage.sql.blobs.blobs import store_constants
from kcache_grpc.storage.sql.engine.bulk import BulkInsert, Probe, insert_once
from kcache_grpc.storage.sql.engine.group_commit import RejectedItems
from kcache_grpc.storage.sql.engine.journal import insert_events
from kcache_grpc.storage.sql.graphs.rows import (
    MAPPING,
    SPEC,
    mapping_as_stored,
    mapping_record,
    mapping_values,
    spec_as_stored,
    spec_record,
    spec_values,
)
from kcache_grpc.storage.sql.quotas import Charge, touch

#: Rows of ``specs`` but for their keys -> the key of each that was inserted, by digest.
AddSpecs = Callable[[Connection, Sequence[Mapping[str, Any]]], Mapping[bytes, int]]
#: What names a mapping in a namespace and epoch.
Name = tuple[bytes, str]

_SPECS = Probe(SPEC, specs.c.spec_digest)
_MAPPINGS = Probe(MAPPING, graph_mappings.c.program_digest)
_INSERT_MAPPINGS = BulkInsert(
    graph_mappings,
    [column.name for column in graph_mappings.columns if column.name != "id"],
    lambda rows: rows.on_conflict_do_nothing().returning(
        graph_mappings.c.id, graph_mappings.c.program_digest, graph_mappings.c.numerics
    ),
)
_INSERT_MAPPING_CONSTANTS = insert_once(mapping_constants)


@dataclass(frozen=True)
class Entry:
    """What one caller stores: a spec, and a program that maps to it unless it is only the spec.

    ``placing`` says where the graph's constants lie.
    """

    spec: SpecDraft
    graph: GraphDraft | None = None
    event: AuditEvent | None = None
    placing: Placing | None = None

    @property
    def size(self) -> int:
        """Bytes, about."""
        constants = () if self.graph is None else self.graph.constants
        return len(self.spec.text) + sum(len(each.content) for each in constants)


@dataclass
class Written:
    """What became of an entry; the mapping is ``None`` where it is only a spec."""

    spec: SpecRecord
    new_spec: bool
    mapping: MappingRecord | None = None
    new_mapping: bool = False


class GraphWriter:
    """Writes entries of one namespace, within the caller's transaction."""

    def __init__(
        self, connection: Connection, namespace: Namespace, add_specs: AddSpecs, writer: str, now: int
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._add_specs = add_specs
        self._writer = writer
        self._now = now
        self._charge = Charge(connection, namespace)
        #: What was not there before, by resource and name: how much a quota counts of it.
        self._new: dict[tuple[str, object], int] = {}

    def write(self, entries: Sequence[Entry]) -> list[Written]:
        """All of them, or raises; ``RejectedItems`` where a quota has no room for some."""
        graphs = [entry.graph for entry in entries if entry.graph is not None]
        # Nobody waits for the counter while this is done.
        self._store_constants(entries)
        mapped = find_mappings(self._connection, self._namespace, map(_name, graphs))
        names = {("mapping", graph.program_digest) for graph in graphs}
        touch(self._connection, self._namespace, names, self._now)
        written = self._write_specs(entries)
        self._write_mappings(entries, written, mapped)
        self._append_events(entries, written)
        try:
            self._charge.apply()
        except QuotaExceeded as full:
            raise RejectedItems(self._without_room(entries)) from full
        return written

    def _without_room(self, entries: Sequence[Entry]) -> list[QuotaExceeded | None]:
        """What each would be told if it came alone, after those before: who is rejected leaves its room."""
        added = _sums(self._new.items())
        rooms = {full.resource: full.most - full.wanted + added[full.resource] for full in self._charge.full}
        paid: set[tuple[str, object]] = set()
        rejections: list[QuotaExceeded | None] = []
        for entry in entries:
            new = {each: self._new[each] for each in _parts(entry) if each in self._new and each not in paid}
            amounts = _sums(new.items())
            rejection = None
            for full in self._charge.full:
                room, amount = rooms[full.resource], amounts.get(full.resource, 0)
                if rejection is None and amount > max(room, 0):
                    place = self._namespace.name, full.resource, full.most
                    rejection = QuotaExceeded(*place, full.most - room + amount, full.policy)
            rejections.append(rejection)
            if rejection is None:
                paid |= new.keys()
                rooms = {resource: room - amounts.get(resource, 0) for resource, room in rooms.items()}
        return rejections

    def _store_constants(self, entries: Sequence[Entry]) -> None:
        placed: dict[bytes, tuple[Blob, Placing | None]] = {}
        for entry in entries:
            for blob in () if entry.graph is None else entry.graph.constants:
                placed.setdefault(blob.digest, (blob, entry.placing))
        for digest, (blob, placing) in sorted(placed.items()):
            before = self._charge.added("artifact_bytes")
            store_constants(self._connection, self._namespace, [blob], self._now, self._charge, placing)
            if added := self._charge.added("artifact_bytes") - before:
                self._new["artifact_bytes", digest] = added

    def _write_specs(self, entries: Sequence[Entry]) -> list[Written]:
        # A caller with only a spec has looked for it.
        known = self._find_specs(entry.spec.spec_digest for entry in entries if entry.graph is not None)
        missing = {
            entry.spec.spec_digest: entry.spec for entry in entries if entry.spec.spec_digest not in known
        }
        new: set[bytes] = set()
        if missing:
            added = self._insert_specs(missing)
            new = set(added)
            known |= added
            known |= self._find_specs(digest for digest in missing if digest not in added)
        written: list[Written] = []
        for digest in (entry.spec.spec_digest for entry in entries):
            if digest not in known:
                raise MissingReference(f"namespace {self._namespace.name!r} is not stored")
            written.append(Written(known[digest], digest in new))
            new.discard(digest)
        return written

    def _insert_specs(self, drafts: Mapping[bytes, SpecDraft]) -> dict[bytes, SpecRecord]:
        rows = [spec_values(self._namespace, draft, self._now) for draft in drafts.values()]
        keys = self._add_specs(self._connection, rows)
        self._charge.add("specs", len(keys))
        self._new |= {("specs", digest): 1 for digest in keys}
        return {digest: spec_as_stored(drafts[digest], key, self._now) for digest, key in keys.items()}

    def _find_specs(self, digests: Iterable[bytes]) -> dict[bytes, SpecRecord]:
        distinct = sorted(set(digests))
        rows = _SPECS.rows(self._connection, {"ns": self._namespace.id}, distinct) if distinct else ()
        return {row.spec_digest: spec_record(row) for row in rows}

    def _write_mappings(
        self, entries: Sequence[Entry], written: Sequence[Written], mapped: dict[Name, MappingRecord]
    ) -> None:
        drafts: dict[Name, MappingDraft] = {}
        for entry, each in zip(entries, written, strict=True):
            graph = entry.graph
            if graph is not None and _name(graph) not in mapped and _name(graph) not in drafts:
                drafts[_name(graph)] = _mapping(graph, each.spec.key)
        stored, new = insert_mappings(self._connection, self._namespace, drafts, self._charge, self._now)
        mapped |= stored
        self._new |= {("mappings", name): 1 for name in new}
        for entry, each in zip(entries, written, strict=True):
            if entry.graph is not None:
                name = _name(entry.graph)
                each.mapping, each.new_mapping = mapped[name], name in new
                new.discard(name)

    def _append_events(self, entries: Sequence[Entry], written: Sequence[Written]) -> None:
        events = [
            replace(entry.event, key=each.spec.key)
            for entry, each in zip(entries, written, strict=True)
            if entry.event is not None and (each.new_spec or each.new_mapping)
        ]
        if events:
            insert_events(self._connection, self._namespace, events, self._writer, self._now)


def find_mappings(
    connection: Connection, namespace: Namespace, names: Iterable[Name]
) -> dict[Name, MappingRecord]:
    """Those that are there, constants lost or not."""
    distinct = set(names)
    if not distinct:
        return {}
    values = {"ns": namespace.id, "epoch": namespace.epoch}
    rows = _MAPPINGS.rows(connection, values, sorted({digest for digest, _ in distinct}))
    records = {(row.program_digest, row.numerics): mapping_record(row) for row in rows}
    return {name: record for name, record in records.items() if name in distinct}


def insert_mappings(
    connection: Connection,
    namespace: Namespace,
    drafts: Mapping[Name, MappingDraft],
    charge: Charge,
    now: int,
) -> tuple[dict[Name, MappingRecord], set[Name]]:
    """Insert mappings whose keys and constants are there; what is stored by name, and which are new."""
    if not drafts:
        return {}, set()
    rows = [mapping_values(namespace, drafts[name], now) for name in sorted(drafts)]
    inserted = _INSERT_MAPPINGS.execute(connection, rows).all()
    ids = {(row.program_digest, row.numerics): row.id for row in inserted}
    charge.add("mappings", len(ids))
    constants = [
        {"mapping_id": number, "position": position, "namespace_id": namespace.id, "digest": digest}
        for name, number in ids.items()
        for position, digest in enumerate(drafts[name].constants)
    ]
    if constants:
        connection.execute(_INSERT_MAPPING_CONSTANTS, constants)
    stored = {name: mapping_as_stored(namespace, drafts[name], now) for name in ids}
    lost = [name for name in drafts if name not in ids]
    if lost:
        stored |= find_mappings(connection, namespace, lost)
    return stored, set(ids)


def _sums(amounts: Iterable[tuple[tuple[str, object], int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for (resource, _), amount in amounts:
        sums[resource] = sums.get(resource, 0) + amount
    return sums


def _parts(entry: Entry) -> list[tuple[str, object]]:
    """What a quota may count of an entry, by resource and name, each once."""
    parts: list[tuple[str, object]] = [("specs", entry.spec.spec_digest)]
    if entry.graph is not None:
        parts.append(("mappings", _name(entry.graph)))
        parts += [("artifact_bytes", digest) for digest in {each.digest for each in entry.graph.constants}]
    return parts


def _name(graph: GraphDraft) -> Name:
    return graph.program_digest, graph.spec.numerics


def _mapping(graph: GraphDraft, key: int) -> MappingDraft:
    constants = tuple(constant.digest for constant in graph.constants)
    return MappingDraft(graph.program_digest, graph.spec.numerics, key, graph.bind(key), constants)
