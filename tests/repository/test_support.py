"""The page of supported ops is what the tests have, and its programs do what it says."""

from __future__ import annotations

import pytest

from kcache_compiler import Limits, canonicalize, compile_spec
from kcache_compiler.errors import CompileFailed, UnsupportedOp
from kcache_compiler.support import check
from kcache_compiler.types import CompileOptions
from scripts.generate_support import PAGE, TABLE, page, table
from tests.repository.edges import Edge, Outcome, edges


def test_the_page_of_supported_ops_is_fresh():
    assert PAGE.read_text() == page(), "run: python -m scripts.generate_support write"
    assert TABLE.read_text() == table(), "run: python -m scripts.generate_support write"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("edge", edges(), ids=lambda edge: edge.name.replace("`", ""))
def test_a_program_at_the_edge_does_what_the_page_says(edge):
    assert outcome(edge) is edge.outcome


@pytest.mark.parametrize(
    "edge",
    [edge for edge in edges() if edge.outcome is not Outcome.COMPILES],
    ids=lambda edge: edge.name.replace("`", ""),
)
def test_a_rejected_program_is_reported(edge):
    report = check(
        edge.program.encode(), edge.format, "x86-64-v3", CompileOptions(opt_level=1), Limits(), lambda _: None
    )
    assert report.rejections
    assert all(rejection.reason for rejection in report.rejections)


def outcome(edge: Edge) -> Outcome:
    try:
        canonical = canonicalize(edge.program.encode(), edge.format)
    except UnsupportedOp:
        return Outcome.NO_KEY
    try:
        compile_spec(canonical.spec_text, canonical.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None)
    except UnsupportedOp:
        return Outcome.NOT_COMPILED
    except CompileFailed:
        return Outcome.FAILS
    return Outcome.COMPILES
