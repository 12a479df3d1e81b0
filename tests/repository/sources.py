"""The imports of the shipped sources, read without running them."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "kcache_grpc": ROOT / "kcache_grpc",
    "kcache_compiler": ROOT / "compiler" / "kcache_compiler",
    "kcache_migrations": ROOT / "migrations" / "kcache_migrations",
}
STANDARD = frozenset(sys.stdlib_module_names)


@dataclass(frozen=True)
class Import:
    """``module`` is imported by ``importer``; ``lazy`` when only inside a function or for type checkers."""

    importer: str
    module: str
    lazy: bool
    line: int

    @property
    def root(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.module}"


@functools.cache
def imports() -> tuple[Import, ...]:
    """Every absolute import in the three packages, generated code apart."""
    return tuple(each for package, folder in PACKAGES.items() for each in _in_package(package, folder))


def third_party() -> list[Import]:
    """Imports from neither the standard library nor ourselves."""
    return [each for each in imports() if each.root not in STANDARD and each.root not in PACKAGES]


def _in_package(package: str, folder: Path) -> Iterator[Import]:
    for path in sorted(folder.rglob("*.py")):
        if "_proto" in path.parts:
            continue
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join((package, *(part for part in parts if part != "__init__")))
        yield from _in_block(name, ast.parse(path.read_text()).body, lazy=False)


def _in_block(importer: str, statements: list[ast.stmt], *, lazy: bool) -> Iterator[Import]:
    for statement in statements:
        match statement:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(importer, alias.name, lazy, statement.lineno)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                for alias in names:
                    yield Import(importer, f"{module}.{alias.name}", lazy, statement.lineno)
            case _:
                inner = lazy or _runs_later(statement)
                for block in _blocks(statement):
                    yield from _in_block(importer, block, lazy=inner)


def _runs_later(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return "TYPE_CHECKING" in ast.unparse(statement.test)
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
        yield part.body
