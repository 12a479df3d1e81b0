"""``kcache gc``, ``quota``, ``pin``, ``unpin``, ``epoch`` and ``disown``: how long things stay."""

from __future__ import annotations

from dataclasses import asdict
from json import loads
from typing import Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.cli.operate import stores
from kcache_grpc.errors import ArgumentError

Subject = Annotated[str, typer.Argument(help="kernel, mapping (of a program) or spec.")]
Digest = Annotated[str, typer.Argument(help="Its digest: 64 hex digits.")]
Resource = Annotated[
    str, typer.Argument(help="kernels, mappings, artifact_bytes, cache_bytes, assertion_bytes or specs.")
]


def gc(
    dry_run: stores.Apply = True,
    namespace: stores.Namespaces = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(help="Evict the longest unused kernels of each namespace down to this many bytes: 20G."),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Remove what was not used for so long: 30d, 12h.")
    ] = None,
    min_age: Annotated[str, typer.Option(help="Nothing younger goes for want of room or references.")] = "5m",
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Remove what is stale, unused or above its limits. Never specs and keys. Safe while servers run.

    Counts only, without --apply.
    """
    from kcache_grpc.service.lifecycle.garbage_collection import OBJECT_GRACE, CollectionOptions, Report

    with stores.administered(db) as (store, admin):
        options = CollectionOptions(
            None if older_than is None else stores.seconds(older_than, "--older-than"),
            None if max_bytes is None else stores.size(max_bytes, "--max-bytes"),
            stores.seconds(min_age, "--min-age"),
            dry_run,
        )
        reports: list[Report] = []
        for each in stores.chosen(store, namespace):
            *_, last = admin.collect(each, options)
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
    stores.say_how_to_apply(dry_run)


def quota_list(
    namespace: stores.Namespaces = None, json: o.Json = False, db: stores.Db = None, debug: o.Debug = False
) -> None:
    """Show the quotas, and how much of each is used."""
    with stores.opened(db) as store:
        rows = [
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
    output.show(rows, json, lambda: output.rows(rows) if rows else "no quotas are set")


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


def compatible_targets(
    namespace: Annotated[str, typer.Argument(help="Key space; made if need be.")],
    allowed: Annotated[
        bool, typer.Option("--allow/--refuse", help="Whether kernels for lower targets will do.")
    ],
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Say whether stored kernels for lower targets answer requests that leave it to the namespace."""
    from kcache_grpc.service.namespaces import check_name

    check_name(namespace)
    with stores.administered(db) as (store, admin):
        changed = admin.set_compatible_targets(store.get_or_create_namespace(namespace), allowed)
    described = {"namespace": namespace, "compatible_targets": allowed, "changed": changed}
    text = f"kernels for lower targets {'will do' if allowed else 'will not do'} in {namespace}"
    output.show(described, json, lambda: text)


def trusted_roles(
    namespace: Annotated[str, typer.Argument(help="Key space; made if need be.")],
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help="A role whose assertions every caller trusts; again for more."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Trust no role: callers trust their own.")] = False,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Set whose assertions of source graphs callers trust beyond their own; without options, print it."""
    from kcache_grpc.service.namespaces import check_name

    if role and none:
        raise ArgumentError("--role and --none contradict each other")
    check_name(namespace)
    with stores.administered(db) as (store, admin):
        space, changed = store.find_namespace(namespace), False
        if role or none:
            space = space or store.get_or_create_namespace(namespace)
            changed = admin.set_trusted_roles(space, role or [])
        roles = list(store.trusted_roles(space)) if space else []
    described = {"namespace": namespace, "trusted_roles": roles, "changed": changed}
    text = f"{namespace} trusts assertions of {', '.join(roles) or 'no role: callers trust their own'}"
    output.show(described, json, lambda: text)


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
    context: typer.Context,
    namespace: stores.Namespaces = None,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Show which kernels, mappings and specs of a store are pinned: those are kept from eviction.

    The commands are about other pins: the identities that servers had at first contact.
    """
    if context.invoked_subcommand is not None:
        return
    with stores.opened(db) as store:
        rows = [
            {"namespace": each.name, "subject": pin.subject, "digest": pin.digest.hex(), "reason": pin.reason}
            for each in stores.chosen(store, namespace)
            for pin in store.list_pins(each)
        ]
    output.show(rows, json, lambda: output.rows(rows) if rows else "nothing is pinned")


def quarantine_list(
    namespace: stores.Namespaces = None, json: o.Json = False, db: stores.Db = None, debug: o.Debug = False
) -> None:
    """Show the kernels and mappings that kcache verify --apply took out of service."""
    with stores.opened(db) as store:
        rows = [
            {
                "id": row.id,
                "namespace": each.name,
                "subject": row.subject,
                "digest": row.digest.hex(),
                "problem": _problem(row.problem),
            }
            for each in stores.chosen(store, namespace)
            for row in store.list_quarantined(each)
        ]
    output.show(rows, json, lambda: output.rows(rows) if rows else "nothing is in quarantine")


def quarantine_restore(
    ids: Annotated[list[int] | None, typer.Argument(help="Numbers of kcache quarantine list.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    namespace: stores.OneNamespace = "default",
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Put kernels and mappings back in service. Those that were made anew since stay in quarantine."""
    if everything == bool(ids):
        raise ArgumentError("name the rows to restore by their numbers, or all of them with --all")
    with stores.administered(db) as (store, admin):
        (space,) = stores.chosen(store, namespace)
        chosen = ids or [row.id for row in store.list_quarantined(space)]
        back = admin.restore_quarantined(space, chosen)
    described = {"restored": [row.id for row in back], "asked": len(chosen)}
    text = f"{output.count(len(back), 'row')} of {len(chosen)} are in service again"
    output.show(described, json, lambda: text)


def quota_application() -> typer.Typer:
    """``kcache quota`` and its commands."""
    app = typer.Typer(no_args_is_help=True)
    app.command("list")(quota_list)
    app.command("set")(quota_set)
    app.command("remove")(quota_remove)
    app.command("compatible-targets")(compatible_targets)
    app.command("trusted-roles")(trusted_roles)
    return app


def quarantine_application() -> typer.Typer:
    """``kcache quarantine`` and its commands."""
    app = typer.Typer(no_args_is_help=True)
    app.command("list")(quarantine_list)
    app.command("restore")(quarantine_restore)
    return app


def epoch_application() -> typer.Typer:
    """``kcache epoch`` and its commands."""
    app = typer.Typer(no_args_is_help=True)
    app.command("list")(epoch_list)
    app.command("raise")(epoch_raise)
    return app


def _problem(detail: str) -> str:
    """The problem in the detail of an audit event."""
    try:
        return str(loads(detail)["problem"])
    except (ValueError, KeyError, TypeError):
        return detail


def epoch_list(json: o.Json = False, db: stores.Db = None, debug: o.Debug = False) -> None:
    """Show the epoch of every namespace."""
    with stores.opened(db) as store:
        rows = [{"namespace": each.name, "epoch": each.epoch} for each in store.list_namespaces()]
    output.show(rows, json, lambda: output.rows(rows) if rows else "there are no namespaces")


def epoch_raise(
    namespace: Annotated[str, typer.Argument(help="Key space.")],
    reason: stores.Reason = "",
    dry_run: stores.Apply = True,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Disown all kernels and mappings of a namespace: servers notice within a second. Keys stay.

    Counts only, without --apply. It cannot be taken back: all kernels are compiled anew.
    """
    with stores.administered(db) as (store, admin):
        (space,) = stores.chosen(store, namespace)
        stats = store.stats(space)
        raised = space if dry_run else admin.raise_epoch(space, reason)
    described = {
        "namespace": namespace,
        "epoch": raised.epoch,
        "dry_run": dry_run,
        "kernels": stats.kernels,
        "mappings": stats.mappings,
    }
    affected = f"{output.count(stats.kernels, 'kernel')} and {output.count(stats.mappings, 'mapping')}"
    text = f"{namespace} is in epoch {raised.epoch}: " + (
        f"--apply would disown {affected}" if dry_run else f"{affected} are disowned"
    )
    output.show(described, json, lambda: text)
    stores.say_how_to_apply(dry_run)


def disown(
    toolchain: Annotated[
        str | None, typer.Option(help="Toolchain digest: 64 hex digits. Without it: shows what is disowned.")
    ] = None,
    namespace: stores.Namespaces = None,
    reason: stores.Reason = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    dry_run: stores.Apply = True,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Never serve kernels of a toolchain again: servers notice within a second.

    Without --apply it only says for which namespaces that is new. --undo, which removes nothing,
    acts at once.
    """
    if toolchain is None:
        if undo or reason:
            raise ArgumentError("--toolchain says which toolchain is meant")
        _show_disowned(namespace, json, db)
        return
    named = stores.digest(toolchain, "toolchain digest")
    with stores.administered(db) as (store, admin):
        spaces = stores.chosen(store, namespace)
        dry_run = dry_run and not undo
        changed = [
            each.name
            for each in spaces
            if (
                all(record.toolchain != named for record in store.list_disowned(each))
                if dry_run
                else admin.disown(each, named, reason, undo=undo)
            )
        ]
    described = {"toolchain": toolchain, "disowned": not undo, "dry_run": dry_run, "changed": changed}
    word = "takes back" if undo else "would disown" if dry_run else "disowns"
    nothing = "nothing would change" if dry_run else "nothing changed"
    lines = [f"{name} {word} {toolchain[:16]}" for name in changed] or [nothing]
    output.show(described, json, lambda: "\n".join(lines))
    stores.say_how_to_apply(dry_run)


def _show_disowned(namespace: str | None, json: bool, db: str | None) -> None:
    with stores.opened(db) as store:
        rows = [
            {"namespace": each.name, "toolchain": record.toolchain.hex(), "reason": record.reason}
            for each in stores.chosen(store, namespace)
            for record in store.list_disowned(each)
        ]
    output.show(rows, json, lambda: output.rows(rows) if rows else "no toolchain is disowned")


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
