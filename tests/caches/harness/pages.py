"""The tables of docs/internals/prior-designs.md, and the names that a Python file defines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "internals" / "prior-designs.md"


def sections() -> dict[str, str]:
    """The text of each section by the first file name in its heading."""
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {match[1]: part for part in parts if (match := re.search(r"`([^`]+)`", part.splitlines()[0]))}


def rows(section: str) -> list[list[str]]:
    """The cells of the tables of a section whose first column is ``original``."""
    result: list[list[str]] = []
    inside = False
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == "original":
            inside = True
        elif inside and not cells[0].startswith("---"):
            result.append(cells)
    return result


def listed(section: str) -> list[str]:
    """The names in the first column; a method that is listed after its class is ``Class.method``."""
    result: list[str] = []
    for cells in rows(section):
        head, colon, tail = cells[0].partition("`: ")
        names = re.findall(r"`([^`]+)`", tail if colon else head)
        owner = head.strip("`")
        result += [f"{owner}.{name}" for name in names] if colon else names
    return result


def defined(source: str) -> set[str]:
    """Functions, classes and methods of a module, without methods of Python's object protocol."""
    return set(_defined(ast.parse(source).body, ""))


def _defined(body: list[ast.stmt], owner: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not (node.name.startswith("__") and node.name.endswith("__")):
                yield owner + node.name
        elif isinstance(node, ast.ClassDef):
            yield owner + node.name
            yield from _defined(node.body, f"{owner}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _defined([*node.body, *node.orelse], owner)


def cited_tests() -> set[tuple[str, str]]:
    """The file and the name of each test that the page cites; an empty name cites a whole file."""
    cited = re.findall(r"`(tests/[\w/.-]+\.py)(?:::(\w+))?`", PAGE.read_text())
    return {(path, name) for path, name in cited}
