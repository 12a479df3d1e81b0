"""Sizes of modules and directories: what CONTRIBUTING.md allows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.repository.sources import ROOT

FOLDERS = ("kcache_grpc", "compiler", "migrations", "scripts", "examples", "benchmarks", "tests")
#: Modules of a directory, ``__init__.py`` apart.
MODULES = 15
#: Lines of a module.
LINES = 600
#: Generated code, whose sizes are those of what it is generated from.
GENERATED = (
    "kcache_grpc/_proto/",
    "kcache_grpc/graph/ops.py",
    "compiler/kcache_compiler/passes/math/coefficients.py",
)
#: One row for each operation.
TABLES = ("tests/graph/cases.py", "tests/ops/harness/programs.py")


def modules() -> list[Path]:
    """Modules written by hand, relative to the root."""
    paths = [path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return [path for path in paths if not path.as_posix().startswith(GENERATED)]


def test_no_directory_has_too_many_modules():
    counts = Counter(path.parent.as_posix() for path in modules() if path.name != "__init__.py")
    assert not {folder for folder, count in counts.items() if count > MODULES}


def test_no_module_has_too_many_lines():
    lengths = {path.as_posix(): (ROOT / path).read_bytes().count(b"\n") for path in modules()}
    assert {name: length for name, length in lengths.items() if length > LINES}.keys() <= set(TABLES)
