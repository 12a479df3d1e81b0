"""``kcache doctor``: is this installation, and the service that it uses, in order?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import exit_codes, output
from kcache_grpc.cli import options as o

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

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
    from kcache_grpc.cli.commands import doctor_checks

    service = doctor_checks.Service(addr, namespace, token_file, tls, timeout, cache_dir)
    checks = [doctor_checks.health(service)] if health else doctor_checks.everything(service, db, objects)
    failed = [check for check in checks if check.state == "failed"]
    described = {"healthy": not failed, "checks": [asdict(check) for check in checks]}
    output.show(described, json, lambda: _table(described["checks"]))
    if failed:
        raise typer.Exit(exit_codes.ERROR)


class _Checks:
    """A line for each check, with its advice below."""

    def __init__(self, checks: Any) -> None:
        self._found = checks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        states = max(len(_MARKS[check["state"]][0]) for check in self._found)
        names = max(len(check["name"]) for check in self._found)
        for check in self._found:
            mark, style = _MARKS[check["state"]]
            head = Text.assemble(
                " ", (mark.ljust(states), style), "  ", (check["name"].ljust(names), "bold"), "  "
            )
            yield from output.hanging(head, check["detail"], options.max_width)
            if check["advice"]:
                yield from output.hanging(Text(" " * len(head)), check["advice"], options.max_width, "bold")


_MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failed": ("failed", "bold red"),
    "skipped": ("-", ""),
}


def _table(checks: Any) -> Any:
    return _Checks(checks)
