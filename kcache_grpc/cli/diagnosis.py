"""``kcache doctor``: is this installation, and the service that it uses, in order?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from kcache_grpc.cli import checks, exits, output
from kcache_grpc.cli import options as o

Health = Annotated[
    bool, typer.Option("--health", help="Only ask the service whether it serves: a probe for containers.")
]
Db = Annotated[str | None, typer.Option(envvar="KCACHE_DB", help="Store to check too.")]
Objects = Annotated[
    str | None, typer.Option(envvar="KCACHE_OBJECTS", help="Object store of that store, if it has one.")
]


def doctor(
    health: Health = False,
    db: Db = None,
    objects: Objects = None,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Check this installation, its cache folder, a store, and the service. Exits with 1 if a check fails."""
    service = checks.Service(addr, namespace, token_file, tls, timeout, cache_dir)
    found = [checks.health(service)] if health else checks.everything(service, db, objects)
    failed = [check for check in found if check.state == "failed"]
    described = {"healthy": not failed, "checks": [asdict(check) for check in found]}
    output.show(described, json, lambda: _table(described["checks"]))
    if failed:
        raise typer.Exit(exits.ERROR)


def _table(found: Any) -> Any:
    from rich.table import Table

    marks = {
        "ok": "[green]ok[/]",
        "warning": "[yellow]warning[/]",
        "failed": "[bold red]failed[/]",
        "skipped": "-",
    }
    table = Table(box=None, show_header=False)
    for check in found:
        from rich.markup import escape

        text = escape(check["detail"]) + (f"\n[bold]{escape(check['advice'])}[/]" if check["advice"] else "")
        table.add_row(marks[check["state"]], f"[bold]{check['name']}[/]", text)
    return table
