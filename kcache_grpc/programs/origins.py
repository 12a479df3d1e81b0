"""Where the operations of a program came from: files and lines, which are no part of the program.

A program is sent without source locations and without comments of the file it was read from, so an error of
the service names a line of the text that was sent. The client keeps the text with its locations, and says
where that line is in the caller's file or module.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kcache_grpc.errors import InvalidProgram, KcacheError
from kcache_grpc.programs.locations import removed_spans

#: A location in the text that was sent: the parser calls its buffer ``-``.
_LOCATION = re.compile(r'"-":(\d+):(\d+)|(?<![^\s(])-:(\d+):(\d+)')
#: The same in what the parser says of text that it cannot read.
_LINE = re.compile(r"\bline (\d+), column (\d+)(?=: )")

_FILE = re.compile(rb'loc\([^#\n]*?"((?:[^"\\]|\\.)*)":(\d+)(?::\d+)?')
_ALIAS = re.compile(rb"loc\((?:[^#\n]*?)(#[\w$.-]+)")
#: Locations that refer to others are followed so far.
_STEPS = 8

#: Between a file and the module that an operation belongs to, in locations of PyTorch programs.
MODULE = "|module "


@dataclass(frozen=True)
class Origins:
    """The text of a program with its locations.

    ``text`` returns it; it is called where there is an error. ``name`` is the file that it was read from, or
    empty. ``shown``: whether the caller knows the text, so that its lines mean something.
    """

    text: Callable[[], bytes] = field(repr=False)
    name: str = ""
    shown: bool = True

    def of(self, error: KcacheError) -> KcacheError:
        """Return the error with locations that the caller knows; the same error where it names none."""
        finder = _Finder(self.text(), self.name, self.shown)
        op = error.metadata.get("op", "")

        def location(match: re.Match[str]) -> str:
            return finder.location(int(match[1] or match[3]), match[2] or match[4], op)

        message = _LOCATION.sub(location, error.message)
        if isinstance(error, InvalidProgram) and self.shown:
            message = _LINE.sub(lambda match: finder.shown_location(int(match[1]), match[2]), message)
        metadata = dict(error.metadata)
        if "location" in metadata:
            metadata["location"] = _LOCATION.sub(location, metadata["location"])
        elif op and (where := finder.operation(op)):
            message = f"{message} (at {where})"
            metadata["location"] = where
        if message == error.message and metadata == error.metadata:
            return error
        cls: Any = type(error)
        return cls(message, **metadata)

    def locations(self, sent: Sequence[str]) -> list[str]:
        """Return locations in the text that was sent, ``-:3:8``, as the caller knows them; others unchanged.

        Of text that the caller knows they keep this form, with its own line.
        """
        finder = _Finder(self.text(), self.name, self.shown)
        locations: list[str] = []
        for location in sent:
            match = _LOCATION.fullmatch(location)
            if match is None:
                locations.append(location)
            elif self.shown:
                line, column = match[1] or match[3], match[2] or match[4]
                locations.append(f"-:{finder.line(int(line))}:{column}")
            else:
                locations.append(finder.location(int(match[1] or match[3]), match[2] or match[4]))
        return locations


@contextlib.contextmanager
def located(origins: Sequence[Origins | None]) -> Generator[None]:
    """Raise errors inside with the locations of the one program that they may be about."""
    try:
        yield
    except KcacheError as error:
        (origin,) = origins if len(origins) == 1 else (None,)
        better = error if origin is None else origin.of(error)
        if better is error:
            raise
        raise better.with_traceback(error.__traceback__) from None


class _Finder:
    """Finds lines of a text without locations in the text that has them."""

    def __init__(self, text: bytes, name: str, shown: bool) -> None:
        self.text, self.name, self.shown = text, name, shown
        self.removed = removed_spans(text)

    def location(self, line: int, column: str, operation: str = "") -> str:
        """Where a line of the text without locations is, which has the operation."""
        start = self._start(line)
        source = self._source(start)
        if not self.shown:
            if operation.encode() not in self.text[start:].partition(b"\n")[0]:
                source = self.operation(operation)
            return source or f"line {line} of its text"
        shown = self._shown(start, column)
        return f"{shown} ({source})" if source else shown

    def shown_location(self, line: int, column: str) -> str:
        """The same, without the location that the line has."""
        return self._shown(self._start(line), column)

    def operation(self, name: str) -> str:
        """Where the operations of a name are; empty where that is not known."""
        pattern = re.compile(rb'(?m)^[^\n"]*(?:=[ \t]*|^[ \t]*)"?' + re.escape(name.encode()) + rb"\b")
        starts = [self.text.rfind(b"\n", 0, match.end()) + 1 for match in pattern.finditer(self.text)]
        locations = list(dict.fromkeys(location for start in starts if (location := self._source(start))))
        more = f" (or one of {len(locations) - 1} others)" if len(locations) > 1 else ""
        return f"{locations[0]}{more}" if locations else ""

    def _start(self, line: int) -> int:
        """Where a line of the text without locations begins in this one."""
        position, remaining = 0, line - 1
        spans = iter([*self.removed, (len(self.text), len(self.text))])
        start, end = next(spans)
        while remaining > 0:
            newline = self.text.find(b"\n", position, start)
            if newline >= 0:
                position, remaining = newline + 1, remaining - 1
                continue
            if start == len(self.text):
                break
            position = end
            start, end = next(spans)
        while position == start < end:  # a line that is gone begins here
            position = end
            start, end = next(spans)
        return position

    def line(self, line: int) -> int:
        """Which line of this text one of the text without locations is."""
        return self.text.count(b"\n", 0, self._start(line)) + 1

    def _shown(self, start: int, column: str) -> str:
        line = self.text.count(b"\n", 0, start) + 1
        return f"{self.name}:{line}:{column}" if self.name else f"line {line}, column {column}"

    def _source(self, start: int) -> str:
        """The file and line that the location of an operation names; empty where it has none."""
        end = self.text.find(b"\n", start)
        piece = self.text[start : len(self.text) if end < 0 else end]
        position = piece.rfind(b"loc(")
        if position < 0:
            return ""
        piece = piece[position:]
        for _ in range(_STEPS):
            if (match := _FILE.match(piece)) is not None:
                return _readable(match[1].decode(errors="replace"), int(match[2]))
            alias = _ALIAS.match(piece)
            definition = alias and re.search(
                rb"(?m)^[ \t]*" + re.escape(alias[1]) + rb"[ \t]*=[ \t]*(loc\([^\n]*)", self.text
            )
            if not definition:
                return ""
            piece = definition[1]
        return ""


def _readable(file: str, line: int) -> str:
    file, _, module = file.partition(MODULE)
    return f"{file}:{line} in module {module}" if module else f"{file}:{line}"
