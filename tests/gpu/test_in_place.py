"""Programs that could work in place, in what others still read, give on a GPU, emulated, the CPU's bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gpu.harness.in_place import FINE, judged
from tests.ops.harness.reference import ReferenceInterpreter


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceInterpreter]:
    interpreter = ReferenceInterpreter()
    yield interpreter
    interpreter.close()


def _require_right(reference: ReferenceInterpreter, numbers: range, opened: bool) -> None:
    found = [judged(number, 3, reference, opened=opened) for number in numbers]
    bad = [case for case in found if case.outcome not in FINE]
    assert not bad, bad[0]
    assert any(case.launches > 1 for case in found)


@pytest.mark.parametrize(
    "opened", [pytest.param(False, marks=pytest.mark.long), True], ids=["given sizes", "all sizes"]
)
def test_nothing_is_overwritten_that_is_still_read(reference: ReferenceInterpreter, opened: bool) -> None:
    _require_right(reference, range(8), opened)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("opened", [False, True], ids=["given sizes", "all sizes"])
@pytest.mark.parametrize("first", range(8, 208, 50))
def test_many_programs_overwrite_nothing_that_is_still_read(
    reference: ReferenceInterpreter, first: int, opened: bool
) -> None:
    _require_right(reference, range(first, first + 50), opened)
