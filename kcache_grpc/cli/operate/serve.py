"""``kcache serve`` and ``kcache migrate``: the commands of the server extra."""

from __future__ import annotations

import gc
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.errors import ArgumentError
from kcache_grpc.server_extra import require_extra

ENVIRONMENT = (
    "Every option has an environment variable, KCACHE_ and its name: --db is KCACHE_DB. Lists have commas; "
    "options win. Limits are KCACHE_MAX_PROGRAM_BYTES, KCACHE_COMPILE_TIMEOUT and others: "
    "docs/reference/settings.md."
)

Db = Annotated[
    str | None, typer.Option(help="Store, such as sqlite:///kcache.sqlite. Default: in the state directory.")
]
Objects = Annotated[
    str | None,
    typer.Option(
        help="Object store for artifacts, s3://bucket/prefix or file:///directory. Default: in --db."
    ),
]
Listen = Annotated[
    list[str] | None, typer.Option(help="host:port; repeat it for several. Default: 127.0.0.1:7420.")
]


def serve(
    db: Db = None,
    objects: Objects = None,
    objects_inline_bytes: Annotated[
        int | None, typer.Option(min=0, help="Artifacts of at most this many bytes stay in --db, 65536.")
    ] = None,
    listen: Listen = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            help="Unix socket, in a directory of mode 0700. Default: in the state directory, if free."
        ),
    ] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Directory of signing key and uploads.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="Signing key; made at first start.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that callers must show.")
    ] = None,
    principals: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Who has its own token: lines of name, role or -, and SHA-256 of the token in hex.",
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow addresses that other machines reach without TLS and token."),
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--migrate", help="Bring an older store to this version's schema first.")
    ] = False,
    disown: Annotated[
        bool, typer.Option("--disown", help="Take over a store that another key signed: compile all anew.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Compilers at most; 0: as many as CPUs and memory allow.")
    ] = None,
    worker_memory: Annotated[int | None, typer.Option(help="Bytes a compiler may use.")] = None,
    max_concurrent: Annotated[int | None, typer.Option(min=1, help="Calls at the same time.")] = None,
    grace: Annotated[float | None, typer.Option(help="Seconds to drain after SIGTERM, 30.")] = None,
    lease_ttl: Annotated[float | None, typer.Option(help="Seconds a silent compile stays reserved.")] = None,
    failure_ttl: Annotated[float | None, typer.Option(help="Seconds a failed compile is remembered.")] = None,
    evict_min_age: Annotated[
        float | None, typer.Option(help="Seconds since its last use before a full quota evicts, 300.")
    ] = None,
    spool_bytes: Annotated[int | None, typer.Option(help="Bytes of uploads under way.")] = None,
    spool_ttl: Annotated[float | None, typer.Option(help="Seconds an upload may rest.")] = None,
    verify_rate: Annotated[
        str | None,
        typer.Option(
            metavar="N/hour",
            help="Stored kernels to compile again and compare while idle, at most; 0: none.",
        ),
    ] = None,
    prepare: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET[,TARGET]",
            help="Targets whose libraries of products and attention are compiled while idle, host; none: no.",
        ),
    ] = None,
    metrics: Annotated[str | None, typer.Option(help="host:port for Prometheus, plain HTTP.")] = None,
    log_format: Annotated[
        str | None, typer.Option(help="text or json.", autocompletion=lambda: ["text", "json"])
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Written once it serves.")] = None,
    preload: Annotated[
        str | None,
        typer.Option(metavar="PATH[:PATH]", help="Bundles, or directories of them, to import at the start."),
    ] = None,
    trust_signer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE_OR_HEX",
            help="Identity whose bundles may be imported, 64 hex digits, or a file with one a line; again "
            "for more. The server's own key is trusted.",
        ),
    ] = None,
    debug: o.Debug = False,
) -> None:
    """Run a server until SIGTERM or Ctrl-C, then drain it.

    Prints one JSON line with its addresses once it serves; logs go to standard error.
    """
    require_extra("serve")
    gc.disable()  # what is imported stays: to look through it again and again is in vain
    try:
        from kcache_grpc.server import ServerConfig
        from kcache_grpc.server import serve as run_server
        from kcache_grpc.server.config import precompile_targets
    finally:
        gc.enable()

    overrides: dict[str, Any] = {
        "db": db,
        "objects": objects,
        "objects_inline_bytes": objects_inline_bytes,
        "listen": tuple(listen) if listen else None,
        "socket": socket,
        "state_dir": state_dir,
        "key_file": key_file,
        "token": o.read_token(token_file),
        "principals": principals,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "insecure": True if insecure else None,
        "migrate": True if upgrade else None,
        "disown": True if disown else None,
        "workers": workers,
        "worker_memory": worker_memory,
        "max_concurrent": max_concurrent,
        "grace": grace,
        "lease_ttl": lease_ttl,
        "failure_ttl": failure_ttl,
        "evict_min_age": evict_min_age,
        "spool_bytes": spool_bytes,
        "spool_ttl": spool_ttl,
        "metrics": metrics,
        "verify_rate": None if verify_rate is None else _rate(verify_rate),
        "prepare": None if prepare is None else precompile_targets(prepare),
        "log_format": log_format,
        "ready_file": ready_file,
        "preload": tuple(Path(part) for part in preload.split(":") if part) if preload else None,
        "trust_signer": tuple(trust_signer) if trust_signer else None,
    }
    run_server(ServerConfig.from_env(os.environ, **overrides))


def _rate(text: str) -> float:
    from kcache_grpc.server.config import per_hour

    try:
        return per_hour(text)
    except ValueError:
        raise ArgumentError(
            f"--verify-rate is {text!r}; use a number of kernels an hour, or such as 1/minute or 100/day"
        ) from None


def migrate(
    db: Db = None,
    source: Annotated[
        str | None, typer.Option("--from", help="Move this store, such as sqlite:///FILE,")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", help="into this empty database, such as postgresql://HOST/NAME.")
    ] = None,
    objects_into_rows: Annotated[
        bool,
        typer.Option(
            "--objects-into-rows", help="Bring all bytes of the object store (KCACHE_OBJECTS) into rows."
        ),
    ] = False,
    server_role: Annotated[
        str | None,
        typer.Option(
            envvar="KCACHE_SERVER_ROLE",
            help="On Postgres: the role that servers connect as, which gets what they need; --db is then the "
            "URL of an administrator.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done: revisions, rows, objects.")
    ] = False,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Bring a store to the schema of this version while its servers run, or move it.

    Servers of the version before go on meanwhile: what they write waits, and is rejected after a while as
    UNAVAILABLE, which clients repeat. Stop them before --from or --objects-into-rows. A move that was
    interrupted goes on when it is typed again; at the end all rows are compared.
    """
    require_extra("migrate")
    if server_role is not None and (objects_into_rows or source is not None or target is not None):
        raise ArgumentError("--server-role is used only with --db: run kcache migrate once more for it")
    if objects_into_rows:
        if source is not None or target is not None:
            raise ArgumentError("--objects-into-rows is a separate command: move the store before or after")
        _inline(db, json, dry_run=dry_run)
        return
    if source is not None or target is not None:
        _move(source, target, json, dry_run=dry_run)
        return
    from kcache_grpc.server import ServerConfig
    from kcache_grpc.storage import migrate as bring_up_to_date
    from kcache_grpc.storage.opening import require_directory, shown_url

    config = ServerConfig.from_env(os.environ, db=db)
    url = config.db
    require_directory(url, config.state_dir)
    if dry_run:
        _show_plan(url, server_role, json)
        return
    bring_up_to_date(url, server_role=server_role)
    shown = shown_url(url)
    described = {"db": shown, "migrated": True} | ({"server_role": server_role} if server_role else {})
    output.show(described, json, lambda: f"{shown} has the schema of this version")


def _show_plan(url: str, server_role: str | None, json: bool) -> None:
    """What a migration would apply, by revision."""
    from kcache_grpc.storage.opening import planned_migration, shown_url

    plan, shown = planned_migration(url), shown_url(url)
    described = {
        "db": shown,
        "migrated": False,
        "dry_run": True,
        "revision": plan.current,
        "revisions": [asdict(each) for each in plan.revisions],
    } | ({"server_role": server_role} if server_role else {})
    lines = [f"{each.revision}  {each.description}" for each in plan.revisions]
    count = output.count(len(lines), "revision")
    has = f"is at revision {plan.current}" if plan.current else "has no schema"
    head = f"{shown} {has}: {count} would be applied" if lines else f"{shown} has the schema of this version"
    grants = [f"the role {server_role} would get what servers need"] if server_role else []
    output.show(described, json, lambda: "\n".join([head, *lines, *grants]))


def _move(source: str | None, target: str | None, json: bool, *, dry_run: bool) -> None:
    if source is None or target is None:
        raise ArgumentError("a move needs both --from and --to")
    from rich.console import Console

    from kcache_grpc.storage.opening import require_directory
    from kcache_grpc.storage.transfer import move_store, planned_move

    require_directory(target)
    if dry_run:
        planned = planned_move(source, target)
        count = output.count(sum(planned.rows.values()), "row")
        described = {"moved": False, "dry_run": True, "rows": dict(planned.rows)}
        output.show(described, json, lambda: f"{count} would be moved and compared")
        return
    console = Console(stderr=True)
    with console.status("moving") as status:
        moved = move_store(source, target, lambda table, rows: status.update(f"moving {table}: {rows} rows"))
    total = sum(moved.rows.values())
    output.show(
        {"moved": True, "rows": dict(moved.rows)},
        json,
        lambda: f"moved and compared {output.count(total, 'row')}",
    )


def _inline(db: str | None, json: bool, *, dry_run: bool) -> None:
    """No row points into the object store when it is done."""
    from kcache_grpc.cli.operate import stores
    from kcache_grpc.storage.contract.lifecycle import RowKind, Step
    from kcache_grpc.storage.records import Inlined

    total = Inlined()
    with stores.opened(db) as store:
        if store.objects_url is None:
            raise ArgumentError("no object store is named; set KCACHE_OBJECTS")
        for namespace in store.list_namespaces():
            total += store.inline_objects(namespace, dry_run=dry_run)
            if dry_run:
                continue
            step = Step(RowKind.QUARANTINED, before=2**62, reason="objects into rows")
            while (after := store.collect(namespace, step).after) is not None:
                step = replace(step, after=after)
    blobs = f"{output.count(total.blobs, 'blob')} of {output.count(total.blob_bytes, 'byte')}"
    if dry_run:
        text = f"{blobs} would come into the database"
        output.show(asdict(total) | {"dry_run": True}, json, lambda: text)
        return
    text = (
        f"{blobs} came into the database, {total.lost} without readable bytes; "
        "no row names an object any more: start the servers without KCACHE_OBJECTS"
    )
    output.show(asdict(total), json, lambda: text)
