"""The table of commands: the line of each in ``kcache --help``, and the module that is imported to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from kcache_grpc.cli import exit_codes

_COMMANDS = "kcache_grpc.cli.commands"
_OPERATE = "kcache_grpc.cli.operate"
#: The name of the function that assembles a group, where a module has one group.
_APPLICATION = "application"


@dataclass(frozen=True)
class Entry:
    """A command or a group of commands.

    ``summary`` is the help of a group, and the first paragraph of a command's help, so that ``kcache --help``
    imports no ``module``. ``function`` is the command, or gives the ``typer.Typer`` of a group. ``epilog``
    names a string in ``module``.
    """

    name: str
    summary: str
    module: str
    function: str
    group: bool = False
    epilog: str | None = None

    def add_to(self, app: typer.Typer) -> None:
        """Import the module, and add the command or group to ``app``."""
        module = import_module(self.module)
        function: Any = getattr(module, self.function)
        if self.group:
            app.add_typer(function(), name=self.name, cls=Group, help=self.summary)
        else:
            app.command(self.name, epilog=self.epilog and getattr(module, self.epilog))(function)

    def add_summary_to(self, app: typer.Typer) -> None:
        """Add a command without parameters, which is listed but not run."""
        app.command(self.name, help=self.summary)(_not_loaded)


def _command(
    name: str, summary: str, module: str, function: str | None = None, epilog: str | None = None
) -> Entry:
    return Entry(name, summary, module, function or name, epilog=epilog)


def _group(name: str, summary: str, module: str, function: str = _APPLICATION) -> Entry:
    return Entry(name, summary, module, function, group=True)


#: In the order of ``kcache --help``, where commands stand before groups.
_ENTRIES = (
    _command(
        "serve",
        "Run a server until SIGTERM or Ctrl-C, then drain it.",
        f"{_OPERATE}.serve",
        epilog="ENVIRONMENT",
    ),
    _command(
        "compile",
        "Compile a program, or find its kernel, and say what came of it.",
        f"{_COMMANDS}.compile",
        "compile_program",
    ),
    _command(
        "run",
        "Compile a program for this machine and run it, on given or random arguments.",
        f"{_COMMANDS}.run",
    ),
    _command(
        "profile",
        "Measure the launches of a program's kernel on this machine's CPUs: time, operations, share of the "
        "peak.",
        f"{_COMMANDS}.profile",
    ),
    _command(
        "autotune",
        "Find the fastest schedule of a program on this machine; `--schedule recorded` uses it from then on.",
        f"{_COMMANDS}.autotune",
    ),
    _command(
        "lookup",
        "Say under which key a program's graph is stored; nothing is stored or compiled.",
        f"{_COMMANDS}.graphs",
    ),
    _command(
        "show",
        "Print the canonical text that is stored under a key, and which kernels it has.",
        f"{_COMMANDS}.graphs",
    ),
    _command(
        "explain",
        "Say why compiling a program hits or misses at the service; nothing is stored or compiled.",
        f"{_COMMANDS}.explain",
    ),
    _command(
        "stats",
        "Print the counters of a namespace at the service, and those of this machine's clients.",
        f"{_COMMANDS}.graphs",
    ),
    _command(
        "support",
        "Say of FILE each op that would be rejected, where, and why; without FILE, list what compiles.",
        f"{_COMMANDS}.support",
        epilog="EPILOG",
    ),
    _command(
        "migrate",
        "Bring a store to the schema of this version while its servers run, or move it.",
        f"{_OPERATE}.serve",
    ),
    _command(
        "doctor",
        "Check the installation, cache directory, store and service. Exits with 1 if a check fails.",
        f"{_COMMANDS}.doctor",
    ),
    _command(
        "gc",
        "Remove what is stale, unused or above its limits. Never specs and keys. Safe while servers run.",
        f"{_OPERATE}.lifecycle",
    ),
    _command(
        "verify",
        "Hash bytes, check signatures, compile again and compare. Exits with 1 if anything is wrong.",
        f"{_OPERATE}.verify",
    ),
    _command(
        "disown",
        "Never serve kernels of a toolchain again: servers notice within a second.",
        f"{_OPERATE}.lifecycle",
    ),
    _command(
        "pin",
        "Keep something from eviction. A raised epoch or a disowned toolchain takes it all the same.",
        f"{_OPERATE}.lifecycle",
    ),
    _command("unpin", "Take a pin away.", f"{_OPERATE}.lifecycle"),
    _command(
        "backup",
        "Copy a store on SQLite while its servers write, and check the copy. For Postgres: pg_dump.",
        f"{_OPERATE}.backup",
    ),
    _command(
        "restore",
        "Put a copy, once it is checked, where the store was. Keys given since the backup are given again.",
        f"{_OPERATE}.backup",
    ),
    _group(
        "cache",
        "The local cache directory: disk tier and embedded store. Show it, empty it.",
        f"{_COMMANDS}.cache",
    ),
    _group(
        "bundle",
        "Kernels and everything that they need in one signed file, for machines without a service.",
        f"{_OPERATE}.bundles",
    ),
    _group(
        "pins",
        "Two kinds of pins. Without a command: kernels, mappings and specs of a store that are kept from "
        "eviction (kcache pin, unpin). With a command: the identities that servers had at first contact.",
        f"{_COMMANDS}.pins",
    ),
    _group(
        "quota",
        "Limits and policies of namespaces: show, set, remove.",
        f"{_OPERATE}.lifecycle",
        "quota_application",
    ),
    _group(
        "quarantine",
        "Kernels and mappings that verify took out: show, restore.",
        f"{_OPERATE}.lifecycle",
        "quarantine_application",
    ),
    _group("epoch", "Epochs of namespaces: show, raise.", f"{_OPERATE}.lifecycle", "epoch_application"),
    _group("audit", "What was asked and served: list, export, prove, prune.", f"{_OPERATE}.audit"),
)

#: By name, in the order of ``kcache --help``.
ENTRIES: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


class Group(TyperGroup):
    """A group whose help shows the first paragraph of each command's help; click would cut it at one line.

    Without a command, a group that needs one prints its help, which click would make an error message.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise typer.Exit(exit_codes.USAGE)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """As in click: write the list of commands."""
        commands: list[tuple[str, Any]] = [
            (name, self.get_command(ctx, name)) for name in self.list_commands(ctx)
        ]
        rows = [
            (name, " ".join((command.help or "").split("\n\n")[0].split()))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class LazyGroup(Group):
    """The commands of ``ENTRIES``. A command is imported to run it or to complete its parameters."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """As in click: the name, the command, and its arguments."""
        name, summary, rest = super().resolve_command(ctx, args)
        return name, summary if name is None else _loaded(ENTRIES[name]), rest


def _loaded(entry: Entry) -> Any:
    """The click command of an entry."""
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(_not_loaded)
    entry.add_to(app)
    group: Any = typer.main.get_command(app)
    return group.commands[entry.name]


def _not_loaded() -> None:
    """Stands for a command in ``LazyGroup``, which replaces it before it is called."""
    raise AssertionError("a command was called before it was imported")
