"""``kcache gc``, ``quota``, ``pin``, ``unpin``, ``epoch`` and ``disown``: how long things stay."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output, stores
from kcache_grpc.errors import ArgumentError

Subject = Annotated[str, typer.Argument(help="kernel, mapping (of a program) or spec.")]
Digest = Annotated[str, typer.Argument(help="Its digest: 64 hex digits.")]
Resource = Annotated[str, typer.Argument(help="kernels, mappings, artifact_bytes or specs.")]


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    namespace: stores.Namespaces = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(help="Evict the longest unused kernels of each namespace down to so many bytes: 20G."),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Remove what was not used for so long: 30d, 12h.")
    ] = None,
    min_age: Annotated[str, typer.Option(help="Nothing younger goes for want of room or references.")] = "5m",
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Remove what is stale, unused or above its limits. Never specs and keys. Safe beside running servers."""
    from kcache_grpc.service.collection import OBJECT_GRACE, Report, Wish

    with stores.administered(db) as (store, admin):
        wish = Wish(
            None if older_than is None else stores.seconds(older_than, "--older-than"),
            None if max_bytes is None else stores.size(max_bytes, "--max-bytes"),
            stores.seconds(min_age, "--min-age"),
            dry_run,
        )
        reports: list[Report] = []
        for each in stores.chosen(store, namespace):
            *_, last = admin.collect(each, wish)
            reports.append(last)
        objects = None if namespace else store.sweep_objects(OBJECT_GRACE, dry_run=dry_run)
    described: dict[str, Any] = {
        "dry_run": dry_run,
        "namespaces": [
            {
                "namespace": report.namespace,
                "rows": report.rows,
                "blobs": report.blobs,
                "blob_bytes": report.blob_bytes,
                "bytes_before": report.bytes_before,
                "unmet": report.unmet,
            }
            for report in reports
        ],
        "objects": None if objects is None else asdict(objects),
    }
    output.show(described, json, lambda: _collected(reports, dry_run))
    for report in reports:
        for limit in report.unmet:
            output.warn(f"namespace {report.namespace}: {limit} is not met: the rest is pinned or too young")


def quota_list(
    namespace: stores.Namespaces = None, json: o.Json = False, db: stores.Db = None, debug: o.Debug = False
) -> None:
    """Show the quotas, and how much of each is used."""
    with stores.opened(db) as store:
        found = [
            {
                "namespace": each.name,
                "resource": quota.resource,
                "used": quota.used,
                "most": quota.most,
                "policy": quota.policy,
            }
            for each in stores.chosen(store, namespace)
            for quota in store.list_quotas(each).values()
        ]
    output.show(found, json, lambda: output.rows(found) if found else "no quotas are set")


def quota_set(
    namespace: Annotated[str, typer.Argument(help="Key space; made if need be.")],
    resource: Resource,
    most: Annotated[str, typer.Argument(help="The most that it may hold: 100000, 20G.")],
    policy: Annotated[
        str | None,
        typer.Option(
            help="evict: make room, the longest unused first (default). refuse: fail (specs always)."
        ),
    ] = None,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Limit a resource of a namespace. What is above it already goes with the next gc or insert."""
    from kcache_grpc.service.namespaces import check_name

    check_name(namespace)
    with stores.administered(db) as (store, admin):
        space = store.get_or_create_namespace(namespace)
        usual = "refuse" if resource == "specs" else "evict"
        quota = admin.set_quota(space, resource, stores.size(most, "MOST"), policy or usual)
    assert quota is not None
    described = {"namespace": namespace, **asdict(quota)}
    text = f"{namespace} holds {quota.used:,} of {quota.most:,} {resource.replace('_', ' ')}"
    output.show(described, json, lambda: text)


def quota_remove(
    namespace: Annotated[str, typer.Argument(help="Key space.")],
    resource: Resource,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Limit it no longer."""
    with stores.administered(db) as (store, admin):
        (space,) = stores.chosen(store, namespace)
        admin.set_quota(space, resource, None, "")
    described = {"namespace": namespace, "resource": resource, "most": None}
    output.show(described, json, lambda: f"{resource} of {namespace} is not limited")


def pin(
    subject: Subject,
    digest: Digest,
    reason: stores.Reason = "",
    namespace: stores.OneNamespace = "default",
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Keep something from eviction. A raised epoch or a disowned toolchain takes it all the same."""
    with stores.administered(db) as (store, admin):
        (space,) = stores.chosen(store, namespace)
        created = admin.pin(space, subject, stores.digest(digest, "digest"), reason)
    described = {"subject": subject, "digest": digest, "created": created}
    output.show(described, json, lambda: "pinned" if created else "it was pinned before")


def unpin(
    subject: Subject,
    digest: Digest,
    namespace: stores.OneNamespace = "default",
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Take a pin away."""
    with stores.administered(db) as (store, admin):
        (space,) = stores.chosen(store, namespace)
        removed = admin.unpin(space, subject, stores.digest(digest, "digest"))
    described = {"subject": subject, "digest": digest, "removed": removed}
    output.show(described, json, lambda: "no longer pinned" if removed else "it was not pinned")


def pins(
    namespace: stores.Namespaces = None, json: o.Json = False, db: stores.Db = None, debug: o.Debug = False
) -> None:
    """Show what is pinned."""
    with stores.opened(db) as store:
        found = [
            {"namespace": each.name, "subject": pin.subject, "digest": pin.digest.hex(), "reason": pin.reason}
            for each in stores.chosen(store, namespace)
            for pin in store.list_pins(each)
        ]
    output.show(found, json, lambda: output.rows(found) if found else "nothing is pinned")


def epoch_list(json: o.Json = False, db: stores.Db = None, debug: o.Debug = False) -> None:
    """Show the epoch of every namespace."""
    with stores.opened(db) as store:
        found = [{"namespace": each.name, "epoch": each.epoch} for each in store.list_namespaces()]
    output.show(found, json, lambda: output.rows(found) if found else "there are no namespaces")


def epoch_raise(
    namespace: Annotated[str, typer.Argument(help="Key space.")],
    reason: stores.Reason = "",
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Disown all kernels and mappings of a namespace: servers notice within a second. Keys stay."""
    with stores.administered(db) as (store, admin):
        (space,) = stores.chosen(store, namespace)
        raised = admin.raise_epoch(space, reason)
    described = {"namespace": namespace, "epoch": raised.epoch}
    output.show(described, json, lambda: f"{namespace} is in epoch {raised.epoch}")


def disown(
    toolchain: Annotated[
        str | None, typer.Option(help="Toolchain digest: 64 hex digits. Without it: shows what is disowned.")
    ] = None,
    namespace: stores.Namespaces = None,
    reason: stores.Reason = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Never serve kernels of a toolchain again: servers notice within a second."""
    if toolchain is None:
        if undo or reason:
            raise ArgumentError("--toolchain says which toolchain is meant")
        _show_disowned(namespace, json, db)
        return
    named = stores.digest(toolchain, "toolchain digest")
    with stores.administered(db) as (store, admin):
        spaces = stores.chosen(store, namespace)
        changed = [each.name for each in spaces if admin.disown(each, named, reason, undo=undo)]
    described = {"toolchain": toolchain, "disowned": not undo, "changed": changed}
    word = "takes back" if undo else "disowns"
    lines = [f"{name} {word} {toolchain[:16]}" for name in changed] or ["nothing changed"]
    output.show(described, json, lambda: "\n".join(lines))


def _show_disowned(namespace: str | None, json: bool, db: str | None) -> None:
    with stores.opened(db) as store:
        found = [
            {"namespace": each.name, "toolchain": one.toolchain.hex(), "reason": one.reason}
            for each in stores.chosen(store, namespace)
            for one in store.list_disowned(each)
        ]
    output.show(found, json, lambda: output.rows(found) if found else "no toolchain is disowned")


def _collected(reports: Any, dry_run: bool) -> Any:
    table = [
        {
            "namespace": report.namespace,
            "kernels": sum(n for kind, n in report.rows.items() if kind.endswith("kernels")),
            "mappings": sum(n for kind, n in report.rows.items() if kind.endswith("mappings")),
            "constants": report.rows.get("constants", 0),
            "blobs": report.blobs,
            "MiB": round(report.blob_bytes / (1 << 20), 3),
            "failures": report.rows.get("failures", 0),
            "leases": report.rows.get("leases", 0),
        }
        for report in reports
    ]
    title = "would remove" if dry_run else "removed"
    return output.rows(table, title) if table else "there are no namespaces"
