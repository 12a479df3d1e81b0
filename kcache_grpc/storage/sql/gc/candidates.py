"""Candidates of a collection on SQL: one statement for each kind, each in the order of an index.

The conditions on epochs and disowned toolchains are those of ``kcache_grpc/model/staleness.py``.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    and_,
    bindparam,
    exists,
    false,
    func,
    or_,
    select,
)

from kcache_grpc.storage.contract.lifecycle import Cursor, RowKind
from kcache_grpc.storage.schema import (
    artifacts,
    constants,
    disowned_toolchains,
    failures,
    graph_mappings,
    kernel_artifacts,
    kernels,
    leases,
    mapping_constants,
    pins,
    programs,
    quarantine,
    quarantined_blobs,
    specs,
    usage,
)
from kcache_grpc.storage.sql.blobs.generations import IN_QUARANTINE

_NS: BindParameter[int] = bindparam("ns")
_EPOCH: BindParameter[int] = bindparam("epoch")
_BEFORE: BindParameter[int] = bindparam("before")
_MOST: BindParameter[int] = bindparam("most")

#: Columns that removal needs, in addition to those of the cursor.
_KERNEL = (kernels.c.id, kernels.c.kernel_digest, kernels.c.epoch)
_MAPPING = (
    graph_mappings.c.id,
    graph_mappings.c.program_digest,
    graph_mappings.c.numerics,
    graph_mappings.c.epoch,
)


def _after(*columns: ColumnElement[Any]) -> ColumnElement[bool]:
    """Rows behind the cursor ``c0``, ``c1``, ...: written out, as not every database ranges over tuples."""
    if not columns:
        return false()
    first, *rest = columns
    here: BindParameter[Any] = bindparam(f"c{3 - len(columns)}")
    if not rest:
        return first > here
    return and_(first >= here, or_(first > here, _after(*rest)))


def _pinned(subject: str, digest: ColumnElement[bytes], key: ColumnElement[int]) -> ColumnElement[bool]:
    itself = exists().where(pins.c.namespace_id == _NS, pins.c.subject == subject, pins.c.digest == digest)
    pinned_keys = (
        select(specs.c.key)
        .join_from(
            pins,
            specs,
            and_(specs.c.namespace_id == pins.c.namespace_id, specs.c.spec_digest == pins.c.digest),
        )
        .where(pins.c.namespace_id == _NS, pins.c.subject == "spec")
    )
    return or_(itself, key.in_(pinned_keys))


def _used_since(subject: str, digest: ColumnElement[bytes]) -> ColumnElement[bool]:
    return exists().where(
        usage.c.namespace_id == _NS,
        usage.c.subject == subject,
        usage.c.digest == digest,
        usage.c.last_used_at >= _BEFORE,
    )


def _idle(subject: str) -> tuple[ColumnElement[bool], ...]:
    return (
        usage.c.namespace_id == _NS,
        usage.c.subject == subject,
        usage.c.last_used_at < _BEFORE,
        _after(usage.c.last_used_at, usage.c.digest),
    )


_IS_DISOWNED = kernels.c.toolchain.in_(
    select(disowned_toolchains.c.toolchain).where(disowned_toolchains.c.namespace_id == _NS)
)
_EPOCH_KERNELS = (
    select(*_KERNEL, kernels.c.epoch.label("p1"), kernels.c.kernel_digest.label("p2"))
    .where(
        kernels.c.namespace_id == _NS,
        kernels.c.epoch < _EPOCH,
        _after(kernels.c.epoch, kernels.c.kernel_digest),
    )
    .order_by(kernels.c.epoch, kernels.c.kernel_digest)
    .limit(_MOST)
)
#: Toolchains, from that of the cursor on: a step is about the kernels of one.
DISOWNED = (
    select(disowned_toolchains.c.toolchain)
    .where(disowned_toolchains.c.namespace_id == _NS, disowned_toolchains.c.toolchain >= bindparam("c1"))
    .order_by(disowned_toolchains.c.toolchain)
)
_DISOWNED_KERNELS = (
    select(*_KERNEL, kernels.c.toolchain.label("p1"), kernels.c.id.label("p2"))
    .where(
        kernels.c.namespace_id == _NS,
        kernels.c.epoch == _EPOCH,
        kernels.c.toolchain == bindparam("of_toolchain"),
        kernels.c.id > bindparam("after_id"),
    )
    .order_by(kernels.c.id)
    .limit(_MOST)
)
_IDLE_KERNELS = (
    select(*_KERNEL, usage.c.last_used_at.label("p1"), usage.c.digest.label("p2"))
    .join_from(
        usage,
        kernels,
        and_(
            kernels.c.namespace_id == usage.c.namespace_id,
            kernels.c.epoch == _EPOCH,
            kernels.c.kernel_digest == usage.c.digest,
        ),
    )
    .where(*_idle("kernel"), ~_IS_DISOWNED, ~_pinned("kernel", kernels.c.kernel_digest, kernels.c.key))
    .order_by(usage.c.last_used_at, usage.c.digest)
    .limit(_MOST)
)

#: Mappings of an older canonicalizer that no mapping of this epoch has followed yet: they tell the old key.
_PRESENT = graph_mappings.alias("present")
_TELLS_OLD_KEY = and_(
    exists().where(
        specs.c.namespace_id == _NS,
        specs.c.key == graph_mappings.c.key,
        specs.c.canonicalizer < bindparam("canonicalizer"),
    ),
    ~exists().where(
        _PRESENT.c.namespace_id == _NS,
        _PRESENT.c.epoch == _EPOCH,
        _PRESENT.c.program_digest == graph_mappings.c.program_digest,
        _PRESENT.c.numerics == graph_mappings.c.numerics,
    ),
    or_(graph_mappings.c.created_at >= _BEFORE, _used_since("mapping", graph_mappings.c.program_digest)),
)
_EPOCH_MAPPINGS = (
    select(*_MAPPING, graph_mappings.c.epoch.label("p1"), graph_mappings.c.program_digest.label("p2"))
    .where(
        graph_mappings.c.namespace_id == _NS,
        graph_mappings.c.epoch < _EPOCH,
        _after(graph_mappings.c.epoch, graph_mappings.c.program_digest),
        ~_TELLS_OLD_KEY,
    )
    .order_by(graph_mappings.c.epoch, graph_mappings.c.program_digest)
    .limit(_MOST)
)
_IDLE_MAPPINGS = (
    select(*_MAPPING, usage.c.last_used_at.label("p1"), usage.c.digest.label("p2"))
    .join_from(
        usage,
        graph_mappings,
        and_(
            graph_mappings.c.namespace_id == usage.c.namespace_id,
            graph_mappings.c.epoch == _EPOCH,
            graph_mappings.c.program_digest == usage.c.digest,
        ),
    )
    .where(*_idle("mapping"), ~_pinned("mapping", graph_mappings.c.program_digest, graph_mappings.c.key))
    .order_by(usage.c.last_used_at, usage.c.digest)
    .limit(_MOST)
)

_FAILURES = (
    select(failures.c.epoch, failures.c.kernel_digest, failures.c.epoch.label("p1"))
    .add_columns(failures.c.kernel_digest.label("p2"))
    .where(
        failures.c.namespace_id == _NS,
        or_(failures.c.expires_at <= bindparam("now"), failures.c.epoch < _EPOCH),
        _after(failures.c.epoch, failures.c.kernel_digest),
    )
    .order_by(failures.c.epoch, failures.c.kernel_digest)
    .limit(_MOST)
)
_LEASES = (
    select(leases.c.epoch, leases.c.kernel_digest, leases.c.epoch.label("p1"))
    .add_columns(leases.c.kernel_digest.label("p2"))
    .where(
        leases.c.namespace_id == _NS,
        leases.c.acquired_at < bindparam("acquired_before"),
        or_(leases.c.boot != bindparam("boot"), leases.c.expires_at < bindparam("expired_before")),
        _after(leases.c.epoch, leases.c.kernel_digest),
    )
    .order_by(leases.c.epoch, leases.c.kernel_digest)
    .limit(_MOST)
)

UNUSED = (
    ~exists().where(kernel_artifacts.c.artifact_id == artifacts.c.id),
    ~exists().where(constants.c.artifact_id == artifacts.c.id),
    ~exists().where(programs.c.artifact_id == artifacts.c.id),
    ~exists().where(quarantined_blobs.c.artifact_id == artifacts.c.id),
)


def _window(*columns: Any, of: Any, order: ColumnElement[Any]) -> Any:
    """The next rows in the order of an index, most of which stay."""
    return select(*columns).where(of, _after(order)).order_by(order).limit(_MOST).subquery("looked_at")


_SEEN_CONSTANTS = _window(
    constants.c.digest,
    constants.c.artifact_id,
    constants.c.created_at,
    of=constants.c.namespace_id == _NS,
    order=constants.c.digest,
)
_CONSTANTS = select(
    _SEEN_CONSTANTS.c.digest,
    _SEEN_CONSTANTS.c.artifact_id,
    and_(
        _SEEN_CONSTANTS.c.created_at < _BEFORE,
        ~exists().where(
            mapping_constants.c.namespace_id == _NS, mapping_constants.c.digest == _SEEN_CONSTANTS.c.digest
        ),
    ).label("unused"),
).order_by(_SEEN_CONSTANTS.c.digest)
_SEEN_PROGRAMS = _window(
    programs.c.program_digest.label("digest"),
    programs.c.artifact_id,
    programs.c.created_at,
    of=programs.c.namespace_id == _NS,
    order=programs.c.program_digest,
)
_OTHERS = programs.alias("others")
_PROGRAMS = select(
    _SEEN_PROGRAMS.c.digest,
    _SEEN_PROGRAMS.c.artifact_id,
    and_(
        _SEEN_PROGRAMS.c.created_at < _BEFORE,
        # A body under two formats is two programs of one blob, by which alone they are removed.
        ~exists(
            select(_OTHERS.c.artifact_id)
            .where(
                _OTHERS.c.artifact_id == _SEEN_PROGRAMS.c.artifact_id,
                exists(
                    select(graph_mappings.c.id)
                    .where(
                        graph_mappings.c.namespace_id == _NS,
                        graph_mappings.c.epoch == _EPOCH,
                        graph_mappings.c.program_digest == _OTHERS.c.program_digest,
                    )
                    .correlate(_OTHERS)
                ),
            )
            .correlate(_SEEN_PROGRAMS)
        ),
    ).label("unused"),
).order_by(_SEEN_PROGRAMS.c.digest)
_SEEN_BLOBS = _window(
    artifacts.c.digest,
    artifacts.c.id,
    artifacts.c.size,
    artifacts.c.created_at,
    of=artifacts.c.namespace_id == _NS,
    order=artifacts.c.digest,
)
_BLOBS = select(
    _SEEN_BLOBS.c.digest,
    _SEEN_BLOBS.c.id.label("artifact_id"),
    _SEEN_BLOBS.c.size,
    and_(
        _SEEN_BLOBS.c.created_at < _BEFORE,
        ~exists().where(kernel_artifacts.c.artifact_id == _SEEN_BLOBS.c.id),
        ~exists().where(constants.c.artifact_id == _SEEN_BLOBS.c.id),
        ~exists().where(programs.c.artifact_id == _SEEN_BLOBS.c.id),
    ).label("unused"),
).order_by(_SEEN_BLOBS.c.digest)

#: Blobs that have a generation in quarantine whose bytes are still there. Of these there are few.
_QUARANTINED = (
    select(quarantine.c.artifact_id)
    .where(
        quarantine.c.created_at < _BEFORE,
        _after(quarantine.c.artifact_id),
        exists().where(artifacts.c.id == quarantine.c.artifact_id, artifacts.c.namespace_id == _NS),
        exists().where(IN_QUARANTINE),
    )
    .group_by(quarantine.c.artifact_id)
    .order_by(quarantine.c.artifact_id)
    .limit(_MOST)
)

#: Rows of a kind: with ``id``, or ``epoch`` and ``kernel_digest``, or ``artifact_id`` and ``unused``.
SELECT: dict[RowKind, Any] = {
    RowKind.EPOCH_KERNELS: _EPOCH_KERNELS,
    RowKind.DISOWNED_KERNELS: _DISOWNED_KERNELS,
    RowKind.IDLE_KERNELS: _IDLE_KERNELS,
    RowKind.EPOCH_MAPPINGS: _EPOCH_MAPPINGS,
    RowKind.IDLE_MAPPINGS: _IDLE_MAPPINGS,
    RowKind.FAILURES: _FAILURES,
    RowKind.LEASES: _LEASES,
    RowKind.CONSTANTS: _CONSTANTS,
    RowKind.PROGRAMS: _PROGRAMS,
    RowKind.BLOBS: _BLOBS,
    RowKind.QUARANTINED: _QUARANTINED,
}
#: The same, with the rows locked that no publisher has locked. Windows are locked when it is known what goes.
LOCK: dict[RowKind, Any] = SELECT | {
    kind: SELECT[kind].with_for_update(of=table, skip_locked=True)
    for kind, table in {
        RowKind.EPOCH_KERNELS: kernels,
        RowKind.DISOWNED_KERNELS: kernels,
        RowKind.IDLE_KERNELS: kernels,
        RowKind.EPOCH_MAPPINGS: graph_mappings,
        RowKind.IDLE_MAPPINGS: graph_mappings,
    }.items()
}
#: Before the first row. Numbers come first where a cursor has two parts.
_START: dict[RowKind, Cursor] = {
    RowKind.DISOWNED_KERNELS: (b"", 0),
    RowKind.CONSTANTS: (b"",),
    RowKind.PROGRAMS: (b"",),
    RowKind.BLOBS: (b"",),
    RowKind.QUARANTINED: (0,),
}

_LINKS = kernel_artifacts.alias("links")
_REFERENCES = (
    select(func.count())
    .select_from(_LINKS)
    .where(_LINKS.c.artifact_id == artifacts.c.id)
    .correlate(artifacts)
    .scalar_subquery()
)
_OTHER_REFERENCES = tuple(
    select(func.count())
    .select_from(table)
    .where(table.c.artifact_id == artifacts.c.id)
    .correlate(artifacts)
    .scalar_subquery()
    for table in (constants, programs)
)
#: One row a reference of these kernels.
USES_OF_KERNELS = (
    select(
        artifacts.c.digest,
        artifacts.c.size,
        (_REFERENCES + _OTHER_REFERENCES[0] + _OTHER_REFERENCES[1]).label("total"),
    )
    .join_from(kernel_artifacts, artifacts, artifacts.c.id == kernel_artifacts.c.artifact_id)
    .where(kernel_artifacts.c.kernel_id.in_(bindparam("ids", expanding=True)))
)


def place(kind: RowKind, after: Cursor | None) -> dict[str, Any]:
    """A cursor as parameters."""
    values = after or _START.get(kind, (-1, b""))
    return {f"c{3 - len(values) + index}": value for index, value in enumerate(values)}


def cursor(kind: RowKind, row: Any) -> Cursor:
    """Where a row is."""
    if kind in (RowKind.CONSTANTS, RowKind.PROGRAMS, RowKind.BLOBS):
        return (row.digest,)
    if kind is RowKind.QUARANTINED:
        return (row.artifact_id,)
    return (row.p1, row.p2)
