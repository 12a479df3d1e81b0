"""What commands print: tables for people, one JSON value with ``--json``; errors to stderr."""

from __future__ import annotations

import itertools
import json
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.text import Text

from kcache_grpc import errors

#: Columns when the output is not a terminal: digests stay on one line.
_PIPE_WIDTH = 160


class WrongUsage(Exception):
    """What was wrong with the command line."""


def stdout() -> Console:
    """For results."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def stderr() -> Console:
    """For progress and complaints; wrapped between words on a terminal, one line each elsewhere."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


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


class Pairs:
    """Names and values, a line each. A value that does not fit next to its name is on the next line."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widest = max(map(cell_len, self._values), default=0)
        for name, value in self._values.items():
            head = Text.assemble(" ", (_padded(name, widest), "bold"), "  ")
            if _longest_word(value) <= options.max_width - head.cell_len:
                yield from hanging(head, value, options.max_width)
            else:
                yield _line(Text.assemble(" ", (name, "bold")))
                yield from hanging(Text("   "), value, options.max_width)


class Rows:
    """Mappings with equal names, a line each; numbers to the right; no word is broken.

    Where the width does not do, columns named in ``expendable`` are left out, the first one first; where that
    does not do either, each mapping takes several lines.
    """

    def __init__(
        self,
        names: Sequence[str],
        numbers: frozenset[str],
        rows: Sequence[Sequence[str]],
        expendable: Sequence[str],
    ) -> None:
        self._names = names
        self._numbers = numbers
        self._rows = rows
        self._expendable = expendable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(self._names)
        dropped: list[str] = []
        for name in (*self._expendable, None):
            widths = self._widths(shown, options.max_width)
            if widths is not None:
                yield from self._lines(shown, widths)
                if dropped:
                    yield Text(f" without {', '.join(dropped)}: --json, or a wider terminal, has them", "dim")
                return
            if name is not None and name in shown:
                shown.remove(name)
                dropped.append(name)
        for index, row in enumerate(self._rows):
            if index:
                yield Text("")
            yield Pairs(dict(zip(self._names, row, strict=True)))

    def _widths(self, shown: Sequence[str], width: int) -> list[int] | None:
        """Of the columns; ``None`` where words would have to be broken."""
        columns = [[name, *(row[self._names.index(name)] for row in self._rows)] for name in shown]
        widths = [max(cell_len(column[0]), *map(_longest_word, column)) for column in columns]
        room = width - 1 - sum(widths) - 2 * (len(widths) - 1)
        if room < 0:
            return None
        missing_widths = [
            max(map(cell_len, column)) - least for column, least in zip(columns, widths, strict=True)
        ]
        for index in sorted(range(len(widths)), key=missing_widths.__getitem__):
            more = min(missing_widths[index], room)
            widths[index] += more
            room -= more
        return widths

    def _lines(self, shown: Sequence[str], widths: Sequence[int]) -> Iterator[Text]:
        yield from self._row(shown, shown, widths, "bold")
        for row in self._rows:
            yield from self._row(shown, [row[self._names.index(name)] for name in shown], widths, "")

    def _row(
        self, shown: Sequence[str], cells: Sequence[str], widths: Sequence[int], style: str
    ) -> Iterator[Text]:
        wrapped = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for parts in itertools.zip_longest(*wrapped, fillvalue=""):
            padded = [
                _padded(part, width, right=name in self._numbers)
                for name, part, width in zip(shown, parts, widths, strict=True)
            ]
            yield _line(Text(" " + "  ".join(padded), style))


def pairs(values: Mapping[str, Any]) -> Pairs:
    """Names and values, a line each."""
    return Pairs({name.replace("_", " "): _text(value) for name, value in values.items()})


def rows(
    values: Sequence[Mapping[str, Any]], title: str | None = None, expendable: Sequence[str] = ()
) -> Any:
    """Mappings with equal names, a line each; numbers to the right. See ``Rows``."""
    from rich.console import Group

    names: Mapping[str, Any] = values[0] if values else {}
    numbers = frozenset(
        name.replace("_", " ")
        for name, value in names.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    )
    cells = [[_text(value) for value in row.values()] for row in values]
    table = Rows([name.replace("_", " ") for name in names], numbers, cells, expendable)
    return table if title is None else Group(Text(title, "italic"), table)


def hanging(head: Text, text: str, width: int, style: str = "") -> Iterator[Text]:
    """``text`` behind ``head``, wrapped between words; later lines are indented as far as it."""
    for index, part in enumerate(_wrapped(text, width - head.cell_len)):
        yield _line(Text.assemble(head if not index else " " * head.cell_len, (part, style)))


def _line(text: Text) -> Text:
    """A line that is neither wrapped nor cut: a word above the width goes on in the terminal's next line."""
    text.rstrip()
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _wrapped(text: str, width: int) -> list[str]:
    lines = [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(line, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]
    ]
    return lines or [""]


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * max(width - cell_len(text), 0)
    return space + text if right else text + space


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
