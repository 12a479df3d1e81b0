"""Every operation of the graph format means what NumPy computes, interpreted and compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kcache_compiler.frontends.graph.operations import OPS
from tests.graph.cases import Case, all_cases
from tests.graph.running import canonical_of, graph_of, interpret, run
from tests.ops.harness.reference import ReferenceInterpreter

CASES = all_cases()


@pytest.fixture(scope="module")
def interpreter() -> Iterator[ReferenceInterpreter]:
    stablehlo = ReferenceInterpreter()
    yield stablehlo
    stablehlo.close()


def test_every_operation_has_a_case():
    assert {case.op for case in CASES} == set(OPS)
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_operation_means_what_numpy_computes(case: Case, interpreter: ReferenceInterpreter):
    graph = graph_of(case.build, case.arrays)
    assert [type.dims for type in canonical_of(graph).results] == [np.shape(each) for each in wanted(case)]
    if case.interpreted:
        compare(case, interpret(interpreter, graph, case.arrays))
    compare(case, run(graph, case.arrays))


def compare(case: Case, got: list[np.ndarray]) -> None:
    for actual, other in zip(got, wanted(case), strict=True):
        assert actual.shape == np.shape(other)
        if actual.dtype.kind in "fc":
            np.testing.assert_allclose(actual, other, case.tolerance, case.tolerance)
        else:
            np.testing.assert_array_equal(actual, other)


def wanted(case: Case) -> list[Any]:
    expected = case.expected(*case.arrays)
    return list(expected) if isinstance(expected, tuple) else [expected]
