"""Tables whose rows are never changed, and the triggers that enforce this: also the audit log."""

from __future__ import annotations

#: Rows that are written once. The columns that name a row: a second insert under them is rejected, so that
#: REPLACE finds nothing to replace on any connection, whatever its pragmas.
IMMUTABLE: dict[str, tuple[tuple[str, ...], ...]] = {
    "specs": (("namespace_id", "key"), ("namespace_id", "spec_digest")),
    "key_aliases": (("namespace_id", "alias"),),
    "programs": (("namespace_id", "program_digest"),),
    "constants": (("namespace_id", "digest"),),
    "graph_mappings": (("id",), ("namespace_id", "epoch", "program_digest", "numerics")),
    "mapping_constants": (("mapping_id", "position"),),
    "kernels": (("id",), ("namespace_id", "epoch", "kernel_digest")),
    "kernel_ingredients": (("kernel_id", "position"),),
    "kernel_artifacts": (("kernel_id", "position"), ("kernel_id", "kind")),
    "artifacts": (("id",), ("namespace_id", "digest")),
    "artifact_chunks": (("artifact_id", "generation", "seq"),),
    "audit_events": (("id",),),
    "audit_seals": (("id",), ("writer", "sequence")),
    "audit_writers": (("writer",),),
    "audit_checkpoints": (("id",), ("writer", "sequence")),
    "conflicts": (("id",),),
    "cache_values": (("id",), ("namespace_id", "key")),
    "cache_chunks": (("value_id", "seq"),),
    "cache_conflicts": (("id",), ("namespace_id", "key", "offered")),
    "assertions": (("id",), ("namespace_id", "epoch", "source_digest", "actor")),
    "assertion_conflicts": (("id",), ("namespace_id", "epoch", "source_digest", "actor", "offered")),
    "assertion_disputes": (("id",), ("namespace_id", "epoch", "source_digest", "actor", "record_digest")),
}

#: Never deleted, not even by collection.
PERMANENT = frozenset({"specs", "key_aliases"})


#: What keeps ``audit_days`` and ``audit_misses``.
_SUMMARIES = {
    "sqlite": ("audit_events_add_miss", "audit_events_add_day"),
    "postgresql": ("audit_events_summarize",),
}


def triggers(dialect: str) -> frozenset[tuple[str, str]]:
    """(trigger, table) as they must be found after every migration and at every opening.

    SQLite's REPLACE deletes without a trigger on some connections: there, inserts are looked at too. Postgres
    has no REPLACE, but TRUNCATE, which row triggers do not see.
    """
    verbs = ("update", "delete", "insert" if dialect == "sqlite" else "truncate")
    guards = {(f"{table}_refuse_{verb}", table) for table in IMMUTABLE for verb in verbs}
    return frozenset(guards | {(name, "audit_events") for name in _SUMMARIES[dialect]})
