"""The commands, and what happens to whatever they raise."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer

from kcache_grpc.cli import (
    audit,
    backing,
    collecting,
    compiling,
    diagnosis,
    exits,
    explaining,
    graphs,
    output,
    running,
    serving,
    support,
    tuning,
    verifying,
)
from kcache_grpc.errors import KcacheError

#: ``click.ClickException``, from whichever click this typer uses.
_ClickError: Any = typer.BadParameter.__mro__[2]

_HELP = "Compile ML graphs once, and share the kernels."


def application() -> typer.Typer:
    """The command line, assembled."""
    app = typer.Typer(
        name="kcache",
        help=_HELP,
        epilog=exits.table(),
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback(invoke_without_command=True)(_root)
    app.command("serve", epilog=serving.ENVIRONMENT)(serving.serve)
    app.command("compile")(compiling.compile_program)
    app.command("run")(running.run)
    app.command("autotune")(tuning.autotune)
    app.command("lookup")(graphs.lookup)
    app.command("show")(graphs.show)
    app.command("explain")(explaining.explain)
    app.command("stats")(graphs.stats)
    app.command("support", epilog=support.EPILOG)(support.support)
    app.command("migrate")(serving.migrate)
    app.command("doctor")(diagnosis.doctor)
    _add_administration(app)
    return app


def _add_administration(app: typer.Typer) -> None:
    """Commands that work on a store directly."""
    app.command("gc")(collecting.gc)
    app.command("verify")(verifying.verify)
    app.command("disown")(collecting.disown)
    app.command("pin")(collecting.pin)
    app.command("unpin")(collecting.unpin)
    app.command("pins")(collecting.pins)
    app.command("backup")(backing.backup)
    app.command("restore")(backing.restore)
    quota = typer.Typer(help="Limits of namespaces: show, set, remove.", no_args_is_help=True)
    quota.command("list")(collecting.quota_list)
    quota.command("set")(collecting.quota_set)
    quota.command("remove")(collecting.quota_remove)
    app.add_typer(quota, name="quota")
    epoch = typer.Typer(help="Epochs of namespaces: show, raise.", no_args_is_help=True)
    epoch.command("list")(collecting.epoch_list)
    epoch.command("raise")(collecting.epoch_raise)
    app.add_typer(epoch, name="epoch")
    app.add_typer(audit.application(), name="audit")


def run(arguments: list[str]) -> int:
    """One command; gives its exit code, and lets nothing out but that."""
    _open_closed_streams()
    as_json = "--json" in arguments
    debug = "--debug" in arguments or bool(os.environ.get("KCACHE_DEBUG"))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code: Any = typer.main.get_command(application())(
                arguments, prog_name="kcache", standalone_mode=False
            )
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; so that the interpreter's last flush fails silently too:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exits.ERROR
    except Exception as error:  # noqa: BLE001 - the last place: every error becomes a paragraph and a code
        return _failed(error, as_json, debug)
    return code if isinstance(code, int) else exits.OK


def _open_closed_streams() -> None:
    """Who closes them (``>&-``) wants no output; and no other file may get their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _failed(error: Exception, as_json: bool, debug: bool) -> int:
    if isinstance(error, _ClickError):
        usage: Any = error
        context = getattr(usage, "ctx", None)
        where = context.command_path if context else "kcache"
        output.complain(output.WrongUsage(f"{usage.format_message()} Try: {where} --help"), as_json, False)
        return exits.USAGE
    output.complain(error, as_json, debug)
    return exits.code_of(error) if isinstance(error, KcacheError) else exits.ERROR


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if category.__name__ == "KcacheWarning":
        output.warn(str(message))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"kcache {metadata.version('kcache-grpc')}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Compile ML graphs once, and share the kernels."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)
        raise typer.Exit(exits.USAGE)
