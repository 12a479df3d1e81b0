"""The commands, and what happens to whatever they raise."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer

from kcache_grpc.cli import exit_codes, output
from kcache_grpc.cli.commands import autotune, cache, compile, doctor, explain, graphs, profile, support
from kcache_grpc.cli.commands import pins as server_pins
from kcache_grpc.cli.commands import run as run_program
from kcache_grpc.cli.operate import audit, backup, bundles, lifecycle, serve, verify
from kcache_grpc.errors import KcacheError

#: ``click.ClickException``, from whichever click this typer uses.
_ClickError: Any = typer.BadParameter.__mro__[2]

_HELP = "Compile ML graphs once, and share the kernels."


def application() -> typer.Typer:
    """The command line, assembled."""
    app = typer.Typer(
        name="kcache",
        help=_HELP,
        epilog=exit_codes.table(),
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback(invoke_without_command=True)(_root)
    app.command("serve", epilog=serve.ENVIRONMENT)(serve.serve)
    app.command("compile")(compile.compile_program)
    app.command("run")(run_program.run)
    app.command("profile")(profile.profile)
    app.command("autotune")(autotune.autotune)
    app.command("lookup")(graphs.lookup)
    app.command("show")(graphs.show)
    app.command("explain")(explain.explain)
    app.command("stats")(graphs.stats)
    app.command("support", epilog=support.EPILOG)(support.support)
    app.command("migrate")(serve.migrate)
    app.command("doctor")(doctor.doctor)
    app.add_typer(cache.application(), name="cache")
    app.add_typer(bundles.application(), name="bundle")
    _add_administration(app)
    return app


def _add_administration(app: typer.Typer) -> None:
    """Commands that work on a store directly."""
    app.command("gc")(lifecycle.gc)
    app.command("verify")(verify.verify)
    app.command("disown")(lifecycle.disown)
    app.command("pin")(lifecycle.pin)
    app.command("unpin")(lifecycle.unpin)
    pins = typer.Typer(help=server_pins.HELP)
    pins.callback(invoke_without_command=True)(lifecycle.pins)
    pins.command("servers")(server_pins.servers)
    pins.command("forget")(server_pins.forget)
    app.add_typer(pins, name="pins")
    app.command("backup")(backup.backup)
    app.command("restore")(backup.restore)
    quota = typer.Typer(help="Limits and policies of namespaces: show, set, remove.", no_args_is_help=True)
    quota.command("list")(lifecycle.quota_list)
    quota.command("set")(lifecycle.quota_set)
    quota.command("remove")(lifecycle.quota_remove)
    quota.command("compatible-targets")(lifecycle.compatible_targets)
    quota.command("trusted-roles")(lifecycle.trusted_roles)
    app.add_typer(quota, name="quota")
    quarantine = typer.Typer(
        help="Kernels and mappings that verify took out: show, restore.", no_args_is_help=True
    )
    quarantine.command("list")(lifecycle.quarantine_list)
    quarantine.command("restore")(lifecycle.quarantine_restore)
    app.add_typer(quarantine, name="quarantine")
    epoch = typer.Typer(help="Epochs of namespaces: show, raise.", no_args_is_help=True)
    epoch.command("list")(lifecycle.epoch_list)
    epoch.command("raise")(lifecycle.epoch_raise)
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
            command = typer.main.get_command(_named_alone(application(), arguments))
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


def _named_alone(app: typer.Typer, arguments: list[str]) -> typer.Typer:
    """``app`` with the command that ``arguments`` name first alone, or with all of them where they name none.

    Typer inspects the parameters of all commands before it runs one.
    """
    commands = [each for each in app.registered_commands if each.name in arguments[:1]]
    groups = [each for each in app.registered_groups if each.name in arguments[:1]]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups
    return app


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
        return exit_codes.USAGE
    output.complain(error, as_json, debug)
    return exit_codes.code_of(error) if isinstance(error, KcacheError) else exit_codes.ERROR


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if category.__name__ == "KcacheWarning":
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
        typer.echo(context.get_help(), nl=False)
        raise typer.Exit(exit_codes.USAGE)
