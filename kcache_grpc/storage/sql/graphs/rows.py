"""Rows of specs and mappings, to and from records."""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import BindParameter, bindparam, select

from kcache_grpc.storage.errors import CorruptStore
from kcache_grpc.storage.records import (
    MappingDraft,
    MappingRecord,
    Namespace,
    SignedBytes,
    SpecDraft,
    SpecRecord,
)
from kcache_grpc.storage.schema import graph_mappings, specs
from kcache_grpc.storage.sql.engine.database import Row

NS: BindParameter[int] = bindparam("ns")
#: Specs of a namespace, for ``spec_record``.
SPEC = select(
    specs.c.key,
    specs.c.spec_digest,
    specs.c.text,
    specs.c.numerics,
    specs.c.canonicalizer,
    specs.c.family,
    specs.c.created_at,
).where(specs.c.namespace_id == NS)
#: Mappings of a namespace and epoch, for ``mapping_record``.
MAPPING = select(
    graph_mappings.c.program_digest,
    graph_mappings.c.numerics,
    graph_mappings.c.key,
    graph_mappings.c.binding,
    graph_mappings.c.signature,
    graph_mappings.c.epoch,
    graph_mappings.c.created_at,
).where(graph_mappings.c.namespace_id == NS, graph_mappings.c.epoch == bindparam("epoch"))


def spec_record(row: Row) -> SpecRecord:
    """Raises ``CorruptStore`` when the text no longer hashes to the digest."""
    record = SpecRecord(
        row.key, row.spec_digest, row.text, row.numerics, row.canonicalizer, row.family, row.created_at
    )
    if hashlib.sha256(record.text.encode()).digest() != record.spec_digest:
        raise CorruptStore(f"the text of spec {record.key} does not hash to its digest")
    return record


def spec_as_stored(spec: SpecDraft, key: int, created_at: int) -> SpecRecord:
    """What ``spec_record`` would read of a draft that was just inserted."""
    return SpecRecord(
        key, spec.spec_digest, spec.text, spec.numerics, spec.canonicalizer, spec.family, created_at
    )


def spec_values(namespace: Namespace, spec: SpecDraft, now: int) -> dict[str, Any]:
    """A row of ``specs`` but for the key."""
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


def mapping_record(row: Row) -> MappingRecord:
    return MappingRecord(
        row.program_digest,
        row.numerics,
        row.key,
        SignedBytes(row.binding, row.signature),
        row.epoch,
        row.created_at,
    )


def mapping_as_stored(namespace: Namespace, mapping: MappingDraft, created_at: int) -> MappingRecord:
    """What ``mapping_record`` would read of a draft that was just inserted."""
    return MappingRecord(
        mapping.program_digest, mapping.numerics, mapping.key, mapping.binding, namespace.epoch, created_at
    )


def mapping_values(namespace: Namespace, mapping: MappingDraft, now: int) -> dict[str, Any]:
    """A row of ``graph_mappings``."""
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
