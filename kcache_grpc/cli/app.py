"""The commands, and what happens to whatever they raise."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer

from kcache_grpc.cli import exit_codes
from kcache_grpc.cli.entries import ENTRIES, Group, LazyGroup
from kcache_grpc.errors import KcacheError

#: ``click.ClickException``, from whichever click this typer uses.
_ClickError: Any = typer.BadParameter.__mro__[2]

_HELP = "Compile ML graphs once, and share the kernels."


def application() -> typer.Typer:
    """The command line with all commands imported."""
    app = _root_application(Group)
    for entry in ENTRIES.values():
        entry.add_to(app)
    return app


def lazy_application() -> typer.Typer:
    """The same command line, which imports the command that it runs. ``--help`` imports none."""
    app = _root_application(LazyGroup)
    for entry in ENTRIES.values():
        entry.add_summary_to(app)
    return app


def _root_application(group: type[Group]) -> typer.Typer:
    app = typer.Typer(
        name="kcache",
        cls=group,
        help=_HELP,
        epilog=exit_codes.table(),
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback(invoke_without_command=True)(_root)
    return app


def run(arguments: list[str]) -> int:
    """One command; gives its exit code, and lets nothing out but that."""
    _open_closed_streams()
    as_json = "--json" in arguments
    debug = "--debug" in arguments or bool(os.environ.get("KCACHE_DEBUG"))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            command = typer.main.get_command(lazy_application())
            code: Any = command(arguments, prog_name="kcache", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; so that the interpreter's last flush fails silently too:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exit_codes.ERROR
    except Exception as error:  # noqa: BLE001 - the last place: every error becomes a paragraph and a code
        return _failed(error, as_json, debug)
    return code if isinstance(code, int) else exit_codes.OK


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
    # Not at the top: rich takes as long to import as typer, and a help text does not use it.
    from kcache_grpc.cli import output

    if isinstance(error, _ClickError):
        usage: Any = error
        context = getattr(usage, "ctx", None)
        where = context.command_path if context else "kcache"
        output.complain(output.WrongUsage(f"{usage.format_message()} Try: {where} --help"), as_json, False)
        return exit_codes.USAGE
    output.complain(error, as_json, debug)
    return exit_codes.code_of(error) if isinstance(error, KcacheError) else exit_codes.ERROR


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if category.__name__ == "KcacheWarning":
        from kcache_grpc.cli import output

        output.warn(str(message))


def _print_version(value: bool) -> None:
    if value:
        from importlib import metadata

        typer.echo(f"kcache {metadata.version('kcache-grpc')}")
        raise typer.Exit


def _print_include(value: bool) -> None:
    if value:
        from importlib import resources

        typer.echo(resources.files("kcache_grpc") / "include")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
    include: bool = typer.Option(
        False,
        "--include",
        callback=_print_include,
        is_eager=True,
        help="Print the directory of kcache.h, for C compilers.",
    ),
) -> None:
    """Compile ML graphs once, and share the kernels."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(exit_codes.USAGE)
