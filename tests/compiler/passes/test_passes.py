"""Each pass of our own changes IR as its test files show.

``BEFORE`` lines match the IR that a pass gets, ``CHECK`` lines the IR that it leaves (``runner.py``).
"""

from __future__ import annotations

import contextlib
import functools
import io
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

from kcache_compiler.passes.stage import Pass
from kcache_compiler.pipelines import cpu, nvidia
from tests.compiler.passes.runner import ROOT, files, run_of, sections, transform

FILES = files()


def mismatch(checks: str, ir: str, prefix: str) -> str:
    """The report of FileCheck for the ``prefix`` lines in ``checks``; empty where they match."""
    options = Options("test file", check_prefixes=[prefix])
    parser = Parser(options, io.StringIO(checks), *pattern_for_opts(options))
    report = io.StringIO()
    with contextlib.redirect_stderr(report):
        matcher = Matcher(options, FInput("IR", ir), parser)
        code = matcher.run()
    return (report.getvalue() or "no match") if code else ""


@functools.cache
def transformed(path: Path, section: str) -> tuple[str, str]:
    """The IR before and after the subject of ``path``."""
    return transform(run_of(path), section)


def own_passes() -> set[tuple[str, str]]:
    """Pipeline and name of each pass that is not one of MLIR's; shared ones belong to ``cpu``."""
    shared = {stage.function for stage in cpu() if isinstance(stage, Pass)}
    gpu_only = [stage for stage in nvidia() if isinstance(stage, Pass) and stage.function not in shared]
    own = {("cpu", stage.name) for stage in cpu() if isinstance(stage, Pass)}
    return own | {("nvidia", stage.name) for stage in gpu_only}


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_pass(path: Path) -> None:
    for section in sections(path):
        before, after = transformed(path, section)
        if "BEFORE" in section:
            assert not (report := mismatch(section, before, "BEFORE")), f"{report}\nbefore:\n{before}"
        assert not (report := mismatch(section, after, "CHECK")), f"{report}\nafter:\n{after}"


@pytest.mark.parametrize(("pipeline", "name"), sorted(own_passes()))
def test_a_file_of_each_pass_rejects_the_ir_before_it(pipeline: str, name: str) -> None:
    paths = [path for path in FILES if (run_of(path).pipeline, run_of(path).subject) == (pipeline, name)]
    assert paths, f"no test file for the pass {name} of {pipeline}"
    assert any(
        mismatch(section, transformed(path, section)[0], "CHECK")
        for path in paths
        for section in sections(path)
    )


def test_checks_that_do_not_match_are_reported() -> None:
    assert mismatch("// CHECK: arith.addf", "arith.addf", "CHECK") == ""
    assert "arith.mulf" in mismatch("// CHECK: arith.mulf", "arith.addf", "CHECK")
    assert mismatch("// CHECK-NOT: arith.addf", "arith.addf\n", "CHECK")
    assert "No check strings" in mismatch("nothing to check", "arith.addf", "CHECK")
