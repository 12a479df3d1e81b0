"""Reads spec texts of every canonicalizer version for comparison, and tolerates lines that it does not know.

``spec.text.parse_spec`` reads only the current version; stored specs may be older. Here sizes, views and
attributes remain text, and lines of unknown form are kept.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_HEADER = re.compile(r"kcache\.spec v\d+ canonicalizer=(\d+) numerics=(\S+) family=(\S+)")
_LEAF = re.compile(r"(arg|const) \S+ (\S.*)\Z")
_NODE = re.compile(r"( *)%\d+ = (\S+)")
_TYPE = re.compile(r'("(?:[^"\\]|\\.)*"|[^\s\["]+)(?:\[([^\]]*)\])?')
_USE = re.compile(r"([%apkq]\d+)(?:\.(\d+))?(?:\[([^\]]*)\])?")


class Type(NamedTuple):
    """Element and dimensions as text; ``dims`` is None for a value that is no tensor."""

    element: str
    dims: tuple[str, ...] | None

    def __str__(self) -> str:
        return self.element if self.dims is None else f"{self.element}[{','.join(self.dims)}]"


class Use(NamedTuple):
    """An operand: the name of a leaf (``a0``) or operation (``%3``), the number of its result, its view."""

    name: str
    result: int
    view: str

    def __str__(self) -> str:
        return f"{self.name}.{self.result}" if self.result else self.name


class Operation(NamedTuple):
    """One line of a body, and the regions under it."""

    op: str
    uses: tuple[Use, ...]
    types: tuple[Type, ...]
    attributes: str
    regions: tuple[Body, ...] = ()


class Body(NamedTuple):
    """The operations of a region in order, its results, and ``head``, the line that lists its leaves."""

    head: str
    operations: tuple[Operation, ...]
    results: tuple[Use, ...]


@dataclass(frozen=True)
class ReadSpec:
    """A spec in the form in which specs are compared. ``others`` are lines of unknown form."""

    canonicalizer: str
    numerics: str
    family: str
    arguments: tuple[Type, ...]
    constants: tuple[Type, ...]
    body: Body
    others: tuple[str, ...] = field(default=())


def read_spec(text: str) -> ReadSpec:
    """Return a spec text as a ``ReadSpec``. Never raises: lines that cannot be read are in ``others``."""
    lines = text.removesuffix("\n").split("\n")
    header = _HEADER.match(lines[0]) if lines else None
    leaves: dict[str, list[Type]] = {"arg": [], "const": []}
    reader = _Reader(lines[1:] if header else lines)
    while leaf := _LEAF.match(reader.line):
        leaves[leaf[1]] += read_types(leaf[2])
        reader.position += 1
    body = reader.body("", "")
    canonicalizer, numerics, family = header.groups() if header else ("", "", "")
    arguments, constants = tuple(leaves["arg"]), tuple(leaves["const"])
    return ReadSpec(canonicalizer, numerics, family, arguments, constants, body, tuple(reader.others))


@functools.lru_cache(maxsize=1024)
def read_types(text: str) -> tuple[Type, ...]:
    """Return the types of a list that is separated by spaces."""
    return tuple(
        Type(match[1], None if match[2] is None else tuple(d for d in match[2].split(",") if d))
        for match in _TYPE.finditer(text)
    )


class _Reader:
    """Reads the lines of a spec text.

    ``position`` is the current line; ``others`` are lines of unknown form.
    """

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.position = 0
        self.others: list[str] = []

    @property
    def line(self) -> str:
        """The current line; empty at the end."""
        return self.lines[self.position] if self.position < len(self.lines) else ""

    def body(self, head: str, indent: str) -> Body:
        """The operations at ``indent``, up to the return or to a line that is less indented."""
        operations: list[Operation] = []
        while self.position < len(self.lines):
            line = self.line
            if line.startswith(f"{indent}return"):
                self.position += 1
                return Body(head, tuple(operations), tuple(_uses(line[len(indent) + len("return") :])))
            node = _NODE.match(line)
            if node is not None and len(node[1]) == len(indent):
                self.position += 1
                operations.append(self._operation(node[2], line[node.end() :], indent))
            elif len(line) - len(line.lstrip()) < len(indent):
                break
            else:
                self.others.append(line)
                self.position += 1
        return Body(head, tuple(operations), ())

    def _operation(self, op: str, rest: str, indent: str) -> Operation:
        uses, _, tail = rest.partition(" :")
        types, _, attributes = tail.partition(" | ")
        regions: list[Body] = []
        while self.line.startswith(f"{indent}  region"):
            head = self.line.strip()
            self.position += 1
            regions.append(self.body(head, f"{indent}    "))
        return Operation(op, tuple(_uses(uses)), read_types(types), attributes, tuple(regions))


def _uses(text: str) -> Iterator[Use]:
    for name, result, view in _USE.findall(text):
        yield Use(name, int(result or 0), view)
