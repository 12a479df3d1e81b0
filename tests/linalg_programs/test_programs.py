"""Random programs of linalg on tensors are right: ``python -m tests.linalg_programs`` draws more."""

from __future__ import annotations

import pytest

from tests.linalg_programs.judge import judge
from tests.ops.generated.judge import Verdict


@pytest.mark.sampled(6)
@pytest.mark.parametrize("number", range(16))
def test_random_programs_are_right(number: int) -> None:
    assert judge(1, number) == Verdict("right")


def test_a_choice_that_has_become_one_branch_compiles() -> None:
    """A pass drops the result of an ``scf.if`` and its other branch with it."""
    assert judge(2302, 72) == Verdict("right")


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_many_random_programs_are_right(block: int) -> None:
    assert {judge(2, number) for number in range(30 * block, 30 * block + 30)} == {Verdict("right")}
