"""Rows in quarantine on SQL: kernels and mappings that verification took out of service, and put back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, Table, bindparam, delete, insert, select

from kcache_grpc.storage.contract.lifecycle import QuarantinedRow
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.schema import (
    constants,
    graph_mappings,
    kernel_artifacts,
    kernel_ingredients,
    kernels,
    mapping_constants,
    quarantined_blobs,
    quarantined_rows,
)
from kcache_grpc.storage.sql.engine.bulk import insert_once
from kcache_grpc.storage.sql.quotas import Charge, touch

_OF: BindParameter[int] = bindparam("of")
_NS: BindParameter[int] = bindparam("ns")
#: The rows that make a subject, parents first, and its blobs.
_KERNEL = {
    kernels: select(kernels).where(kernels.c.id == _OF),
    kernel_ingredients: select(kernel_ingredients).where(kernel_ingredients.c.kernel_id == _OF),
    kernel_artifacts: select(kernel_artifacts).where(kernel_artifacts.c.kernel_id == _OF),
}
_LIFTED = (
    select(constants)
    .join(
        mapping_constants,
        (mapping_constants.c.namespace_id == constants.c.namespace_id)
        & (mapping_constants.c.digest == constants.c.digest),
    )
    .where(mapping_constants.c.mapping_id == _OF)
    .distinct()
)
_MAPPING = {
    constants: _LIFTED,
    graph_mappings: select(graph_mappings).where(graph_mappings.c.id == _OF),
    mapping_constants: select(mapping_constants).where(mapping_constants.c.mapping_id == _OF),
}
_PARTS: dict[str, dict[Table, Any]] = {"kernel": _KERNEL, "mapping": _MAPPING}
_RESOURCES = {"kernel": "kernels", "mapping": "mappings"}
#: Whether a row of the same name is there: made anew since.
_TAKEN = {
    "kernel": select(kernels.c.id).where(
        kernels.c.namespace_id == _NS,
        kernels.c.epoch == bindparam("epoch"),
        kernels.c.kernel_digest == bindparam("digest"),
    ),
    "mapping": select(graph_mappings.c.id).where(
        graph_mappings.c.namespace_id == _NS,
        graph_mappings.c.epoch == bindparam("epoch"),
        graph_mappings.c.program_digest == bindparam("digest"),
        graph_mappings.c.numerics == bindparam("numerics"),
    ),
}
_CONSTANT = select(constants.c.artifact_id).where(
    constants.c.namespace_id == _NS, constants.c.digest == bindparam("digest")
)
_INSERT = insert(quarantined_rows).returning(quarantined_rows.c.id)
_INSERT_BLOB = insert_once(quarantined_blobs)
_COLUMNS = (
    quarantined_rows.c.id,
    quarantined_rows.c.subject,
    quarantined_rows.c.digest,
    quarantined_rows.c.problem,
    quarantined_rows.c.created_at,
)
LIST = select(*_COLUMNS).where(quarantined_rows.c.namespace_id == _NS).order_by(quarantined_rows.c.id)
_READ = select(quarantined_rows).where(quarantined_rows.c.namespace_id == _NS, quarantined_rows.c.id == _OF)
_OLD = select(quarantined_rows.c.id).where(
    quarantined_rows.c.namespace_id == _NS, quarantined_rows.c.created_at < bindparam("before")
)
_FORGET_BLOBS = delete(quarantined_blobs).where(quarantined_blobs.c.row_id == _OF)
_FORGET = delete(quarantined_rows).where(quarantined_rows.c.id == _OF)


def keep_rows(
    connection: Connection, namespace: Namespace, subject: str, ids: Sequence[int], problem: str, now: int
) -> None:
    """Copy rows that are about to be removed into quarantine, in the caller's transaction."""
    for number in ids:
        content: dict[str, list[dict[str, Any]]] = {}
        for table, rows in _PARTS[subject].items():
            records = connection.execute(rows, {"of": number}).mappings()
            content[table.name] = [{name: _plain(value) for name, value in row.items()} for row in records]
        (row,) = content[kernels.name if subject == "kernel" else graph_mappings.name]
        digest = row["kernel_digest" if subject == "kernel" else "program_digest"]
        values = {"namespace_id": namespace.id, "subject": subject, "digest": bytes.fromhex(digest["hex"])}
        values |= {"problem": problem, "created_at": now, "content": json.dumps(content)}
        row_id = connection.execute(_INSERT, values).scalar_one()
        linked = content[kernel_artifacts.name if subject == "kernel" else constants.name]
        for blob in sorted({link["artifact_id"] for link in linked}):
            connection.execute(_INSERT_BLOB, {"row_id": row_id, "artifact_id": blob})


def put_back(connection: Connection, namespace: Namespace, number: int, now: int) -> QuarantinedRow | None:
    """Put a row back where it was, in the caller's transaction; ``None`` where it is not, or made anew."""
    row = connection.execute(_READ, {"ns": namespace.id, "of": number}).first()
    if row is None:
        return None
    content = json.loads(row.content)
    (saved,) = content[kernels.name if row.subject == "kernel" else graph_mappings.name]
    name = {"ns": namespace.id, "epoch": saved["epoch"], "digest": row.digest}
    if row.subject == "mapping":
        name["numerics"] = saved["numerics"]
    if connection.execute(_TAKEN[row.subject], name).first() is not None:
        return None
    for table in _PARTS[row.subject]:
        for plain in content[table.name]:
            values = {column: _stored(each) for column, each in plain.items()}
            # Other mappings may lift the same constant.
            if table is not constants or connection.execute(_CONSTANT, _named(values)).first() is None:
                connection.execute(insert_once(table), values)
    charge = Charge(connection, namespace)
    charge.add(_RESOURCES[row.subject])
    touch(connection, namespace, [(row.subject, row.digest)], now)
    forget(connection, number)
    charge.apply()
    return QuarantinedRow(row.id, row.subject, row.digest, row.problem, row.created_at)


def forget_old(connection: Connection, namespace: Namespace, before: int) -> None:
    """Forget rows that came into quarantine before that, in microseconds."""
    for (number,) in connection.execute(_OLD, {"ns": namespace.id, "before": before}).all():
        forget(connection, number)


def forget(connection: Connection, number: int) -> None:
    """Take a row out of quarantine; its blobs stay for a later collection."""
    connection.execute(_FORGET_BLOBS, {"of": number})
    connection.execute(_FORGET, {"of": number})


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"ns": values["namespace_id"], "digest": values["digest"]}


def _plain(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _stored(value: int | str | dict[str, str] | None) -> int | str | bytes | None:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
