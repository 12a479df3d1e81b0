"""Hits on SQL: all that an answer takes, in one statement.

The conditions on epoch and toolchain keep stale kernels out (``kcache_grpc/model/staleness.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, bindparam, case, func, literal_column, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.store import HitStore
from kcache_grpc.storage.records import (
    ArtifactRef,
    LoadedGraph,
    LoadedKernel,
    MappingRecord,
    Namespace,
    SignedBytes,
    Wanted,
)
from kcache_grpc.storage.schema import (
    artifact_chunks,
    artifacts,
    graph_mappings,
    kernel_artifacts,
    kernels,
    quarantine,
)
from kcache_grpc.storage.sql.blobs.generations import IN_QUARANTINE, lost_constants
from kcache_grpc.storage.sql.engine.database import Rows, SqlPart
from kcache_grpc.storage.sql.engine.prepared import Prepared
from kcache_grpc.storage.sql.kernels.kernels import KERNEL_COLUMNS, stored_kernel

_ARTIFACT = artifacts.alias("artifact")


def _chunks(column: ColumnElement[Any]) -> Select[Any]:
    """Of the artifact of a row, in generations that are not in quarantine."""
    return (
        select(column)
        .select_from(artifact_chunks)
        .outerjoin(quarantine, IN_QUARANTINE)
        .where(artifact_chunks.c.artifact_id == _ARTIFACT.c.id, quarantine.c.artifact_id.is_(None))
        .correlate(_ARTIFACT, kernel_artifacts)
        .limit(1)
    )


def _whole() -> ColumnElement[Any]:
    """A generation that is whole; NULL: the bytes are lost."""
    generation = artifact_chunks.c.generation
    complete = _chunks(generation).group_by(generation)
    return complete.having(func.sum(artifact_chunks.c.size) == _ARTIFACT.c.size).scalar_subquery()


def _content() -> ColumnElement[Any]:
    """The bytes of the youngest generation of one chunk, if they are wanted."""
    chunks = _chunks(artifact_chunks.c.content).where(
        artifact_chunks.c.seq == 0,
        artifact_chunks.c.size == _ARTIFACT.c.size,
        _ARTIFACT.c.size <= bindparam("most"),
        bindparam("kinds", type_=Text).contains("," + kernel_artifacts.c.kind + ","),
    )
    return chunks.order_by(artifact_chunks.c.generation.desc()).scalar_subquery()


def _only() -> ColumnElement[Any]:
    """The kernel of a mapping's key, where there is only one."""
    variant = kernels.alias("variant")
    # Toolchains are compared behind OFFSET 0, an optimization fence: Postgres, before it has statistics,
    # would search by toolchain.
    variants = (
        select(variant.c.id, variant.c.toolchain)
        .where(
            variant.c.namespace_id == graph_mappings.c.namespace_id,
            variant.c.epoch == graph_mappings.c.epoch,
            variant.c.key == graph_mappings.c.key,
            variant.c.target == bindparam("target"),
            variant.c.options == bindparam("options"),
        )
        .offset(literal_column("0"))
        .correlate(graph_mappings)
        .subquery("candidates")
    )
    ours = select(variants.c.id).where(variants.c.toolchain == bindparam("toolchain"))
    matching = ours.limit(2).subquery("matching")
    only = case((func.count() == 1, func.min(matching.c.id)))
    return select(only).select_from(matching).correlate(graph_mappings).scalar_subquery()


_COLUMNS = (
    *KERNEL_COLUMNS,
    kernel_artifacts.c.kind,
    _ARTIFACT.c.digest,
    _ARTIFACT.c.size,
    _whole().label("whole"),
    _content().label("content"),
)
#: A row for each artifact of a kernel.
_LOAD_KERNEL = Prepared(
    select(*_COLUMNS)
    .select_from(
        kernels.join(kernel_artifacts, kernel_artifacts.c.kernel_id == kernels.c.id).join(
            _ARTIFACT, _ARTIFACT.c.id == kernel_artifacts.c.artifact_id
        )
    )
    .where(
        kernels.c.namespace_id == bindparam("ns"),
        kernels.c.epoch == bindparam("epoch"),
        kernels.c.kernel_digest == bindparam("digest"),
    )
    .order_by(kernel_artifacts.c.position)
)
#: A row for each artifact of the only kernel; where there is none, one that is empty from ``id`` on.
_LOAD_GRAPH = Prepared(
    select(
        graph_mappings.c.key.label("mapped_key"),
        graph_mappings.c.binding,
        graph_mappings.c.signature.label("binding_signature"),
        graph_mappings.c.created_at.label("mapped_at"),
        *_COLUMNS,
    )
    .select_from(
        graph_mappings.outerjoin(kernels, kernels.c.id == _only())
        .outerjoin(kernel_artifacts, kernel_artifacts.c.kernel_id == kernels.c.id)
        .outerjoin(_ARTIFACT, _ARTIFACT.c.id == kernel_artifacts.c.artifact_id)
    )
    .where(
        graph_mappings.c.namespace_id == bindparam("ns"),
        graph_mappings.c.epoch == bindparam("epoch"),
        graph_mappings.c.program_digest == bindparam("digest"),
        graph_mappings.c.numerics == bindparam("numerics"),
        ~lost_constants(graph_mappings.c.id),
    )
    .order_by(kernel_artifacts.c.position)
)


class SqlHits(SqlPart, HitStore):
    """``HitStore`` on SQL."""

    def load_graph(
        self, namespace: Namespace, program_digest: bytes, numerics: str, wanted: Wanted
    ) -> LoadedGraph | None:
        values = _values(namespace, program_digest, numerics, wanted)
        return _graph(self._db.read(_LOAD_GRAPH, values), program_digest, numerics, namespace)

    def ask_graph(
        self, namespace: Namespace, program_digest: bytes, numerics: str, wanted: Wanted
    ) -> Awaitable[LoadedGraph | None] | None:
        asked = self._db.ask(_LOAD_GRAPH, _values(namespace, program_digest, numerics, wanted))
        return None if asked is None else _asked_graph(asked, program_digest, numerics, namespace)

    def load_kernel(self, namespace: Namespace, kernel_digest: bytes, wanted: Wanted) -> LoadedKernel | None:
        checks.digest("kernel digest", kernel_digest)
        here = {"ns": namespace.id, "epoch": namespace.epoch, "digest": kernel_digest}
        rows = self._db.read(_LOAD_KERNEL, {**here, **_bounds(wanted)})
        return _loaded(rows) if rows else None


def _values(namespace: Namespace, program_digest: bytes, numerics: str, wanted: Wanted) -> dict[str, object]:
    checks.digest("program digest", program_digest)
    checks.digest("toolchain", wanted.toolchain)
    checks.text("numerics, target or options", numerics, wanted.target, wanted.options)
    return {
        "ns": namespace.id,
        "epoch": namespace.epoch,
        "digest": program_digest,
        "numerics": numerics,
        "target": wanted.target,
        "options": wanted.options,
        "toolchain": wanted.toolchain,
        **_bounds(wanted),
    }


async def _asked_graph(
    asked: Awaitable[Rows], program_digest: bytes, numerics: str, namespace: Namespace
) -> LoadedGraph | None:
    return _graph(await asked, program_digest, numerics, namespace)


def _graph(rows: Rows, program_digest: bytes, numerics: str, namespace: Namespace) -> LoadedGraph | None:
    if not rows:
        return None
    row = rows[0]
    binding = SignedBytes(row.binding, row.binding_signature)
    mapping = MappingRecord(program_digest, numerics, row.mapped_key, binding, namespace.epoch, row.mapped_at)
    return LoadedGraph(mapping, None if row.id is None else _loaded(rows))


def _bounds(wanted: Wanted) -> dict[str, object]:
    checks.number("most", wanted.most)
    checks.text("kinds", *wanted.kinds)
    return {"kinds": f",{','.join(wanted.kinds)},", "most": wanted.most}


def _loaded(rows: Rows) -> LoadedKernel | None:
    """The kernel if all its bytes are there, with those that came along and are what their digest says."""
    if any(row.whole is None for row in rows):
        return None
    contents = {row.digest: row.content for row in rows if row.content is not None}
    right = {name: content for name, content in contents.items() if hashlib.sha256(content).digest() == name}
    refs = tuple(ArtifactRef(row.kind, row.digest, row.size) for row in rows)
    return LoadedKernel(stored_kernel(rows[0], refs), right)
