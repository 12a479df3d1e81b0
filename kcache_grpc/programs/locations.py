"""Takes source locations out of MLIR text, without a parser and in linear time.

Locations hold file paths and change with every edit. What goes: ``loc(...)`` behind operations, regions
and block arguments, and the ``#loc = loc(...)`` lines that nothing refers to any more. What stays:
everything inside strings and comments, symbols and labels called ``loc``, and location *attributes*
(``{at = loc("x")}``), whose absence would change the program. Text that cannot be read this way, an
unclosed string for one, comes back as it was: the server will say what is wrong with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_STRING = rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_COMMENT = rb"//[^\n]*"
_ALIAS = rb"#[A-Za-z_$][\w$.-]*"
_SCAN = re.compile(
    rb"(?P<string>" + _STRING + rb")"
    rb"|(?P<comment>" + _COMMENT + rb")"
    rb"|^[ \t]*(?P<definition>" + _ALIAS + rb")[ \t]*=[ \t]*loc[ \t]*\("
    rb"|(?P<reference>" + _ALIAS + rb")"
    rb"|(?P<location>(?<![\w$.@%!^#-])loc[ \t]*\()"
    rb'|(?P<unclosed>")',
    re.MULTILINE,
)
_INSIDE = re.compile(_STRING + rb"|" + _COMMENT + rb'|(?P<paren>[()])|(?P<unclosed>")')
_REFERENCES = re.compile(_STRING + rb"|(?P<alias>" + _ALIAS + rb")")
#: A location after one of these is a value of something, not the mark of an operation.
_BEFORE_VALUE = frozenset(b"=,[(<{:")
_BLANK = b" \t\r\n"


def strip_locations(text: bytes) -> bytes:
    """The program without its locations; the same bytes when it has none."""
    return _Stripper(text).run() if b"loc" in text else text


def removed_spans(text: bytes) -> list[tuple[int, int]]:
    """Return what ``strip_locations`` takes out: begins and ends, in order."""
    stripper = _Stripper(text)
    if b"loc" not in text or stripper.run() is text:
        return []
    gone = [
        (definition.start, definition.start + len(definition.text))
        for definition in stripper.definitions.values()
    ]
    return sorted([*stripper.dropped, *gone])


@dataclass(frozen=True)
class _Definition:
    """A ``#name = loc(...)`` line, kept only if something still needs it."""

    text: bytes
    #: Where it begins in the program.
    start: int
    #: Where it would stand among the pieces of the output.
    piece: int


class _Stripper:
    """Removes locations from MLIR text, but not from strings and comments."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.pieces: list[bytes] = []
        #: Start of what was not yet copied to ``pieces``.
        self.pending = 0
        self.comment_end = -1
        self.definitions: dict[bytes, _Definition] = {}
        self.references: set[bytes] = set()
        #: Locations that were taken out, with the blanks before them.
        self.dropped: list[tuple[int, int]] = []

    def run(self) -> bytes:
        cursor = 0
        while (match := _SCAN.search(self.text, cursor)) is not None:
            cursor = self._step(match)
            if cursor < 0:
                return self.text
        self.pieces.append(self.text[self.pending :])
        self._keep_needed_definitions()
        return b"".join(self.pieces)

    def _step(self, match: re.Match[bytes]) -> int:
        """Where to go on; negative when the text cannot be read."""
        if match.lastgroup == "unclosed":
            return -1
        if match.lastgroup == "comment":
            self.comment_end = match.end()
        if match.lastgroup == "reference":
            self.references.add(match["reference"])
        if match.lastgroup not in ("definition", "location"):
            return match.end()
        end = _closing(self.text, match.end())
        if end < 0:
            return -1
        if match.lastgroup == "definition":
            return self._define(match, end)
        return self._drop(match.start(), end)

    def _define(self, match: re.Match[bytes], end: int) -> int:
        newline = self.text.find(b"\n", end)
        end = len(self.text) if newline < 0 else newline + 1
        self.pieces.append(self.text[self.pending : match.start()])
        text = self.text[match.start() : end]
        self.definitions[match["definition"]] = _Definition(text, match.start(), len(self.pieces))
        self.pieces.append(b"")
        self.pending = end
        return end

    def _drop(self, start: int, end: int) -> int:
        before = len(self.text[self.pending : start].rstrip(_BLANK)) + self.pending
        follows = self.text[before - 1] if before > self.pending else None
        if follows is None or follows in _BEFORE_VALUE or before == self.comment_end:
            self.references.update(_aliases(self.text[start:end]))
            return end
        self.pieces.append(self.text[self.pending : before])
        self.dropped.append((before, end))
        self.pending = end
        return end

    def _keep_needed_definitions(self) -> None:
        waiting = [name for name in self.references if name in self.definitions]
        while waiting:
            definition = self.definitions.pop(waiting.pop())
            self.pieces[definition.piece] = definition.text
            names = _aliases(definition.text) & self.definitions.keys()
            waiting.extend(names - set(waiting))


def _closing(text: bytes, position: int) -> int:
    """Behind the parenthesis that closes the one before ``position``; negative when there is none."""
    depth = 1
    for match in _INSIDE.finditer(text, position):
        if match.lastgroup == "unclosed":
            return -1
        if match["paren"]:
            depth += 1 if match["paren"] == b"(" else -1
            if depth == 0:
                return match.end()
    return -1


def _aliases(text: bytes) -> set[bytes]:
    return {match["alias"] for match in _REFERENCES.finditer(text) if match["alias"]}
