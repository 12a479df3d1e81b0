"""What commands print: tables for people, one JSON value with ``--json``; errors to stderr."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from kcache_grpc import errors

#: Columns when the output is not a terminal: digests stay on one line.
_PIPE_WIDTH = 160


class WrongUsage(Exception):
    """What was wrong with the command line."""


def stdout() -> Console:
    """For results."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def stderr() -> Console:
    """For progress and complaints."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def show(value: Any, as_json: bool, render: Callable[[], RenderableType]) -> None:
    """Print ``value`` as JSON, or what ``render`` makes of it."""
    if as_json:
        sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")
        sys.stdout.flush()
        return
    console = stdout()
    if console.is_terminal:
        console.print(render(), crop=False)
        return
    with console.capture() as captured:
        console.print(render(), crop=False)
    # Tables fill their lines with spaces.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    sys.stdout.flush()


def pairs(values: Mapping[str, Any], title: str | None = None) -> Table:
    """Names and values, a line each."""
    table = Table(title=title, show_header=False, box=None, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(name.replace("_", " "), escape(_text(value)))
    return table


def rows(values: Sequence[Mapping[str, Any]], title: str | None = None) -> Table:
    """Mappings with equal names, a line each; numbers to the right."""
    table = Table(title=title, title_justify="left", box=None)
    names: Mapping[str, Any] = values[0] if values else {}
    for name, value in names.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        table.add_column(name.replace("_", " "), justify="right" if number else "left", overflow="fold")
    for row in values:
        table.add_row(*(escape(_text(value)) for value in row.values()))
    return table


def complain(error: BaseException, as_json: bool, debug: bool) -> None:
    """One paragraph on stderr, or a JSON object; a traceback only when asked for."""
    if debug:
        traceback.print_exception(error)
    if as_json:
        sys.stderr.write(json.dumps({"error": _described(error)}) + "\n")
        return
    console = stderr()
    console.print(f"[bold red]kcache: error:[/] {escape(_sentence(error))}")
    if isinstance(error, errors.CompileFailed) and error.diagnostic and error.diagnostic not in str(error):
        console.print(escape(error.diagnostic))


def warn(message: str) -> None:
    """One line on stderr."""
    stderr().print(f"[yellow]kcache: warning:[/] {escape(message)}")


def _sentence(error: BaseException) -> str:
    if isinstance(error, (errors.KcacheError, OSError, WrongUsage)):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error} (this is a bug in kcache; --debug shows where)"


def _described(error: BaseException) -> dict[str, Any]:
    described: dict[str, Any] = {"type": _public_name(error), "message": _sentence(error)}
    if isinstance(error, errors.KcacheError):
        described |= {
            "reason": error.reason,
            "retryable": error.retryable,
            "metadata": dict(error.metadata),
        }
    return described


def _public_name(error: BaseException) -> str:
    """Of the nearest class that is documented."""
    named = (cls for cls in type(error).__mro__ if cls in errors.WIRE_FORMS and cls is not errors.KcacheError)
    public = next(named, errors.KcacheError if isinstance(error, errors.KcacheError) else type(error))
    return public.__name__


def count(number: int, noun: str) -> str:
    """``1 call``, ``2 calls``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(value)
