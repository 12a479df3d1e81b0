"""ONNX's own operator tests: each case is right, or rejected with an error that says why."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.onnx_models.node_tests import ROUNDED, Outcome, outcomes

#: Cases of this toolchain's onnx package that were right when this was written.
_RIGHT = 1307


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_operators_compute_what_the_standard_says() -> None:
    results: list[Outcome] = list(outcomes())
    assert [o for o in results if o.how == "wrong"] == []
    assert {o.name for o in results if o.how == "rounded"} <= ROUNDED
    assert all(o.why for o in results if o.how != "ok")
    counts = Counter(o.how for o in results)
    assert counts["ok"] >= _RIGHT, counts
