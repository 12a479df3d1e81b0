"""``kcache audit``: what was asked and served, and the proof that nobody changed the record."""

from __future__ import annotations

import json as json_module
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import exit_codes, output
from kcache_grpc.cli import options as o
from kcache_grpc.cli.operate import stores
from kcache_grpc.errors import ArgumentError, NotFound

if TYPE_CHECKING:
    from kcache_grpc import AuditEvent
    from kcache_grpc.model.signing import Signer
    from kcache_grpc.service.audit.proof import Chain, KeptHead
    from kcache_grpc.storage import Store

Filter = Annotated[
    str,
    typer.Argument(metavar="FILTER", help="Such as 'job = train-7 AND kind = serve': docs/operate/audit.md."),
]

_HEX_KEY = 64
#: Columns of the list that a narrow terminal does without, the first one first.
_EXPENDABLE = ("requests", "saved s", "target", "ms", "kernel", "actor", "job")
#: Seconds within which a running server seals its own events.
_GRACE = 900.0


def list_events(
    filter: Filter = "",
    limit: Annotated[int, typer.Option(min=1, help="Most events.")] = 50,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="In the order of time.")] = False,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Show events of a namespace, the newest first."""
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        events = list(client.audit(filter, newest_first=not oldest_first, limit=limit))
    output.show(list(map(_described, events)), json, lambda: _table(events))


def export(
    filter: Filter = "",
    after: Annotated[int, typer.Option(min=0, help="Only events with greater ids.")] = 0,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Write all events of a namespace to standard output, the oldest first, as one JSON object a line."""
    beyond = f"id > {after}" if after else ""
    both = f"({filter}) AND {beyond}" if filter and beyond else filter or beyond
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        for event in client.audit(both):
            sys.stdout.write(json_module.dumps(_described(event)) + "\n")
    sys.stdout.flush()


def heads(
    json: o.Json = False,
    db: Annotated[str | None, typer.Option(help="Read a store instead of asking the service.")] = None,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Show the last seal of every chain. Keep it (--json) away from the store, for audit verify --heads."""
    if db is not None:
        described = _heads_of_store(db)
    else:
        with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
            reply = client.audit_heads()
        described = {
            "store_id": reply.store_id,
            "public_keys": [reply.public_key],
            "time": reply.time.isoformat(),
            "heads": [{**asdict(head), "time": head.time.isoformat()} for head in reply.heads],
        }
    rows: Any = described["heads"]
    output.show(described, json, lambda: output.rows(rows) if rows else "no seals")


def verify(
    heads: Annotated[
        Path | None, typer.Option(help="What audit heads --json said before: shows an end that was cut off.")
    ] = None,
    public_key: Annotated[
        list[str] | None,
        typer.Option(help="Key that seals must be signed with, hex; default: of --heads, else the store's."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Events that no seal proves are a failure too.")
    ] = False,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Hash every event of a store again, follow every chain, sum again. Exits with 1 if something differs."""
    from kcache_grpc.service.audit.proof import Verification

    exported, store_id, keys = _read_heads(heads)
    keys += [_key(text) for text in public_key or ()]
    with stores.opened(db) as store:
        if store_id and store_id != store.id:
            raise ArgumentError(f"{heads} is of store {store_id}, not of {store.id}")
        overdue = time.time_ns() // 1000 - round(_GRACE * 1e6)
        chains = Verification(store, keys).all(exported, overdue)
        wrong = list(store.wrong_summaries())
    findings = [asdict(finding) for chain in chains for finding in chain.findings]
    unsealed = sum(chain.unsealed for chain in chains)
    sound = not findings and not wrong and not (strict and unsealed)
    described = {
        "sound": sound,
        "keys": "given" if keys else "the store's own",
        "events": sum(chain.events for chain in chains),
        "unsealed": unsealed,
        "pruned_events": sum(chain.pruned_events for chain in chains),
        "findings": findings,
        "wrong_summaries": wrong,
        "chains": [{**asdict(chain), "findings": len(chain.findings)} for chain in chains],
    }
    output.show(described, json, lambda: _report(chains, described))
    if not sound:
        raise typer.Exit(exit_codes.ERROR)


def seal(
    older_than: Annotated[
        str, typer.Option(help="Leave younger events to their own server: 10m, 0s.")
    ] = "10m",
    key_file: stores.KeyFile = None,
    state_dir: stores.StateDir = None,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Seal what servers that died left unsealed. Running servers seal their own events every minute."""
    from kcache_grpc.service.audit.sealer import Sealer

    before = time.time_ns() // 1000 - round(stores.seconds(older_than, "--older-than") * 1e6)
    with _signing(db, state_dir, key_file) as (store, signer):
        sealer = Sealer(store, signer)
        sealer.begin()
        sealed = sealer.adopt(before)
        sealer.seal_own()
    output.show({"sealed": sealed}, json, lambda: f"sealed {output.count(sealed, 'event')}")


def prune(
    before: Annotated[str, typer.Option(help="Time (2026-01-31T00:00:00Z) or age (90d, 12h).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    key_file: stores.KeyFile = None,
    state_dir: stores.StateDir = None,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Remove old events, a seal at a time; a signed checkpoint stands for them, so that the rest proves."""
    from kcache_grpc.service.audit.retention import Retention
    from kcache_grpc.service.audit.sealer import Sealer

    with _signing(db, state_dir, key_file) as (store, signer):
        sealer = Sealer(store, signer)
        if not dry_run:
            sealer.begin()
        pruned = Retention(store, signer).prune(_moment(before), dry_run=dry_run)
        sealer.seal_own()
    removed = sum(each.events for each in pruned)
    described = {"dry_run": dry_run, "events": removed, "chains": [asdict(each) for each in pruned]}
    verb = "would remove" if dry_run else "removed"
    output.show(described, json, lambda: f"{verb} {output.count(removed, 'event')}")


def rebuild(json: o.Json = False, db: stores.Db = None, debug: o.Debug = False) -> None:
    """Sum all events again where v_misses and v_time_saved say otherwise; who appends waits meanwhile."""
    with stores.administered(db) as (store, admin):
        wrong = admin.rebuild_summaries()
        left = list(store.wrong_summaries()) if wrong else []
    described = {"rebuilt": bool(wrong), "wrong_summaries": wrong, "still_wrong": left}
    lines = [*wrong, "the summaries were made anew"] if wrong else ["the summaries say what the events say"]
    output.show(described, json, lambda: "\n".join([*lines, *left]))
    if left:
        raise typer.Exit(exit_codes.ERROR)


def application() -> typer.Typer:
    """``kcache audit`` and its commands."""
    app = typer.Typer(no_args_is_help=True)
    app.command("list")(list_events)
    app.command("export")(export)
    app.command("heads")(heads)
    app.command("verify")(verify)
    app.command("seal")(seal)
    app.command("prune")(prune)
    app.command("rebuild")(rebuild)
    return app


@contextmanager
def _signing(
    db: str | None, state_dir: Path | None, key_file: Path | None
) -> Generator[tuple[Store, Signer]]:
    """A store and the key that signs what it holds. Raises ``NotFound``, ``PermissionDenied``."""
    from kcache_grpc.model.signing import Signer

    config = stores.settings(db, state_dir, key_file)
    path = stores.signing_key(config)
    if path is None:
        where = "for this store" if config.default_key else f"at {config.signing_key}"
        raise NotFound(f"there is no signing key {where}; name it with --key-file")
    signer = Signer.from_file(path)
    with stores.opened(db) as store:
        store.claim_signer(signer.key_id)
        yield store, signer


def _heads_of_store(db: str) -> dict[str, Any]:
    from kcache_grpc.service.audit.seal_chains import head

    with stores.opened(db) as store:
        writers = store.list_writers()
        latest = [(each.writer, head(store, each.writer)) for each in writers]
        return {
            "store_id": store.id,
            "public_keys": sorted({each.public_key.hex() for each in writers if each.public_key}),
            "time": _iso(time.time_ns() // 1000),
            "heads": [
                {
                    "writer": writer,
                    "sequence": last.sequence,
                    "root": last.root.hex(),
                    "time": _iso(last.created_at),
                }
                for writer, last in latest
                if last.sequence
            ],
        }


def _read_heads(path: Path | None) -> tuple[list[KeptHead], str, list[bytes]]:
    """Heads, the store's id and keys from a file. Raises ``NotFound``, ``ArgumentError``."""
    from kcache_grpc.service.audit.proof import KeptHead

    if path is None:
        return [], "", []
    try:
        read: Any = json_module.loads(path.read_text())
        exported = [
            KeptHead(str(each["writer"]), int(each["sequence"]), bytes.fromhex(each["root"]))
            for each in read["heads"]
        ]
        return exported, str(read["store_id"]), [_key(text) for text in read["public_keys"]]
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"{path} is not what kcache audit heads --json prints: {error!r}") from error


def _key(text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) * 2 != _HEX_KEY:
        raise ArgumentError(f"{text[:80]!r} is not a public key: {_HEX_KEY} hex digits")
    return key


def _moment(text: str) -> int:
    """UTC microseconds of a time, or of so long ago."""
    from kcache_grpc.storage.audit.fields import FIELDS, read_value

    if text[:1].isdigit() and text[-1:].isalpha() and "-" not in text:
        return time.time_ns() // 1000 - round(stores.seconds(text, "--before") * 1e6)
    moment = read_value(FIELDS["time"], "<", text)
    assert isinstance(moment, int)
    return moment


def _iso(microseconds: int) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(microseconds / 1e6, timezone.utc).isoformat()


def _described(event: AuditEvent) -> dict[str, Any]:
    return {**asdict(event), "time": event.time.isoformat()}


def _table(events: list[AuditEvent]) -> Any:
    """What fits a line; --json has the rest."""
    rows: list[Mapping[str, Any]] = [
        {
            "id": event.id,
            "time": event.time.isoformat(timespec="milliseconds")[:23],
            "kind": event.kind,
            "outcome": event.outcome.lower(),
            "actor": event.actor,
            "job": event.job,
            "key": event.key,
            "kernel": event.kernel_digest[:12],
            "target": event.target,
            "ms": round(event.duration * 1e3, 1),
            "saved s": round(event.time_saved, 3),
            "requests": event.request_count,
        }
        for event in events
    ]
    return output.rows(rows, expendable=_EXPENDABLE) if rows else "no events"


def _report(chains: list[Chain], described: Mapping[str, Any]) -> Any:
    from rich.console import Group

    summary = {name: described[name] for name in ("sound", "keys", "events", "unsealed", "pruned_events")}
    rows = [
        {
            "writer": chain.writer,
            "seals": chain.seals,
            "events": chain.events,
            "unsealed": chain.unsealed,
            "findings": len(chain.findings),
        }
        for chain in chains
    ]
    parts: list[Any] = [output.pairs(summary)]
    if rows:
        parts += ["", output.rows(rows)]
    if described["findings"]:
        parts += ["", output.rows(described["findings"])]
    if described["wrong_summaries"]:
        parts += ["", output.rows([{"wrong summary": each} for each in described["wrong_summaries"]])]
    return Group(*parts)
