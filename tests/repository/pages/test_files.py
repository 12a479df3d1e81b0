"""The files around the code: the image, the make targets, the CI entry point."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.repository.sources import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
TARGETS = ("demo", "test", "test-long", "check", "format", "bench", "proto", "examples", "help")


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
        "README.md",
        "LICENSE",
        "kcache_grpc",
        "compiler",
        "migrations",
        "protos",
    } <= kept
    assert all((ROOT / path).exists() for path in kept)


@pytest.mark.parametrize("target", TARGETS)
def test_make_knows_its_targets(target):
    subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, timeout=240)


def test_help_lists_every_public_target():
    shown = subprocess.run(["make"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=240).stdout
    phony = set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert phony == set(re.findall(r"^  (\S+)", shown, re.MULTILINE))


def test_ci_runs_what_contributors_run():
    entry = ROOT / ".ci" / "run"
    assert entry.stat().st_mode & 0o111
    assert "make check" in entry.read_text()
    assert "make test" in entry.read_text()


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("*.md")) + [ROOT / "README.md"], ids=lambda path: path.name
)
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("*.md")) + [ROOT / "README.md"], ids=lambda path: path.name
)
def test_files_that_pages_name_exist(page):
    """`path/to/file.py` in a page is a path from the root of the repository."""
    named = re.findall(
        r"`((?:kcache_grpc|compiler|migrations|protos|tests|examples|deploy|scripts|docs)/[\w./-]+)`",
        page.read_text(),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []
