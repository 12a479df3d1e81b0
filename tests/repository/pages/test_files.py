"""The files around the code: the image, the make targets, the CI entry point."""

from __future__ import annotations

import functools
import re
import subprocess

import pytest

import kcache_grpc
from scripts import site_pages
from tests.repository.sources import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
TARGETS = ("demo", "test", "test-long", "check", "docs", "format", "bench", "proto", "examples", "help")
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
#: Pages that scripts/site_pages.py adds while the site is built.
GENERATED = {DOCS / path for path in site_pages.pages()}


def test_the_image_is_built_by_the_tested_script_and_runs_without_root():
    build, final = DOCKERFILE.split("\nFROM ")[1:]
    assert "deploy/build_image.sh /opt/kcache" in build
    assert "COPY --from=build /opt/kcache /opt/kcache" in final
    assert int(re.findall(r"^USER (\d+)$", final, re.MULTILINE)[-1]) > 0
    assert re.search(r"^HEALTHCHECK .*CMD \[", final, re.MULTILINE)


def test_everything_that_the_wheel_needs_enters_the_image_build():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "kcache.py",
        "kcache_grpc",
        "compiler",
        "migrations",
        "protos",
    } <= kept
    assert all((ROOT / path).exists() for path in kept)


@pytest.mark.parametrize("target", TARGETS)
def test_make_knows_its_targets(target):
    subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, timeout=240)


def test_make_names_the_python_that_it_needs(tmp_path):
    older = tmp_path / "python3.10"
    version = 'exec python3 "$1" "import sys; sys.version_info = (3, 10, 13)\n$2"'
    older.write_text(f"#!/bin/sh\n{version}\n")
    older.chmod(0o755)
    target = tmp_path / "venv" / "bin" / "python"
    made = subprocess.run(
        ["make", target, f"VENV={tmp_path / 'venv'}", f"PYTHON={older}"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert made.returncode == 2
    assert f"with Python 3.11 or later, and {older} is 3.10" in made.stderr
    assert not target.parent.parent.exists()


def test_help_lists_every_public_target():
    shown = subprocess.run(["make"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=240).stdout
    phony = set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert phony == set(re.findall(r"^  (\S+)", shown, re.MULTILINE))


def test_ci_runs_what_contributors_run():
    entry = ROOT / ".ci" / "run"
    assert entry.stat().st_mode & 0o111
    assert "make check" in entry.read_text()
    assert "make test" in entry.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    local = [page.parent / link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not link.exists() and link.resolve() not in GENERATED] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_pages_name_exist(page):
    """`path/to/file.py` in a page is a path from the root of the repository."""
    named = re.findall(
        r"`((?:kcache_grpc|compiler|migrations|protos|tests|examples|deploy|scripts|docs)/[\w./-]+)`",
        page.read_text(),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_page_of_the_python_api_has_every_public_name():
    page = (DOCS / "reference" / "python.md").read_text()
    documented = set(re.findall(r"^::: kcache_grpc\.(\w+)", page, re.MULTILINE))
    errors = {cls.__name__ for cls in vars(kcache_grpc.errors).values() if isinstance(cls, type)}
    assert set(kcache_grpc.__all__) - errors - {"__version__"} <= documented


def test_the_generated_pages_name_every_method_and_command():
    protos, commands = site_pages.proto_page(), site_pages.command_page()
    sources = [path.read_text() for path in site_pages.PROTOS.glob("*.proto")]
    methods = {name for source in sources for name in re.findall(r"rpc (\w+)\(", source)}
    messages = {name for source in sources for name in re.findall(r"^message (\w+)", source, re.MULTILINE)}
    assert {name for name in methods if f"| `{name}` |" not in protos} == set()
    assert {name for name in messages if f"message `{name}`" not in protos} == set()
    for command in ("serve", "compile", "bundle verify", "audit verify", "epoch raise"):
        assert f"## kcache {command}\n" in commands


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "prior-designs.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_python_files_that_pages_name_by_their_end_exist(page):
    """`gemm/match.py` or `match.py` in a page is the end of a path, unless it is one of PyTorch's."""
    named = set(re.findall(r"`((?!torch/)[\w./-]+\.py)`", page.read_text()))
    assert {name for name in named if f"/{name}\n" not in python_files()} == set()


@functools.cache
def python_files() -> str:
    """The paths of all Python files, a line each."""
    folders = ("kcache_grpc", "compiler", "migrations", "tests", "scripts", "benchmarks", "examples")
    paths = [*ROOT.glob("*.py"), *(path for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    return "".join(f"/{path.relative_to(ROOT)}\n" for path in paths)
