"""Random programs on elements of 8 bits and fewer against the reference interpreter: a sample."""

from __future__ import annotations

import pytest

from tests.ops.generated.drive import cases
from tests.ops.generated.operations.catalog import drawn
from tests.ops.generated.small.__main__ import CHILD
from tests.ops.generated.small.derive import pairs


def judged(count: int, seed: int) -> list[str]:
    """What is not right; of what is rejected by name, what goes beyond one in twenty."""
    chosen = drawn(pairs(), count, seed)
    results = list(cases(chosen, count, seed, module=CHILD))
    assert len(results) >= min(count, len(chosen))
    rejected = [case for case in results if case.outcome == "rejected"]
    others = [case for case in results if case.outcome not in ("right", "no-oracle", "rejected")]
    beyond = rejected if len(rejected) > len(results) // 20 else []
    return [f"{case.op} {case.dtype} {case.number}: {case.outcome} {case.reason}" for case in others + beyond]


def test_some_are_right() -> None:
    assert not judged(12, 3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 8))
def test_many_are_right(seed: int) -> None:
    assert not judged(400, seed)
