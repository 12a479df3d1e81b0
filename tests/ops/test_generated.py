"""Random programs of every operation agree with the oracle, or are refused by name; none ends a process."""

from __future__ import annotations

import pytest

from tests.ops.generated.catalog import pairs
from tests.ops.generated.drive import cases
from tests.ops.generated.ledger import rows, totals

#: What this version refuses, of all that is generated.
REFUSED: frozenset[str] = frozenset()
#: Shares of all pairs of operation and dtype; CI has one of them.
SHARES = 8


@pytest.mark.parametrize(
    "share", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, SHARES))]
)
def test_generated_programs_are_right_or_refused(share: int) -> None:
    chosen = pairs()[share::SHARES]
    found = list(cases(chosen, len(chosen), seed=2))
    assert len(found) == len(chosen)
    bad = [case for case in found if case.outcome in ("wrong", "crash", "error")]
    assert not bad, bad[0]
    assert {case.op for case in found if case.outcome == "refused"} <= REFUSED
    right = sum(case.outcome == "right" for case in found)
    assert right >= 0.95 * len(found)


def test_the_ledger_has_no_wrong_result_and_every_program_an_outcome() -> None:
    sums = totals(rows())
    assert sums.total() == sum(row["programs"] for row in rows()) > 0
    assert not sums["wrong"] + sums["crash"] + sums["error"]


def test_bf16_between_blocks_where_nothing_is_optimized() -> None:
    found = list(cases([("concatenate", "bf16"), ("pad", "bf16")], 6, seed=5, level=0))
    assert [case.outcome for case in found] == ["right"] * 6, found
