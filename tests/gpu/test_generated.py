"""Random programs of every operation and dtype give on a GPU, emulated, the bits of the CPU."""

from __future__ import annotations

import pytest

from kcache_compiler.errors import UnsupportedOp
from tests.gpu.generated import FINE, cases, cpu_refuses, difference_of
from tests.ops.generated.catalog import pairs
from tests.ops.generated.small import derive

#: Shares of all pairs of operation and dtype; CI has one of them.
SHARES = 80


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "share", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, SHARES))]
)
def test_generated_programs_give_the_bits_of_the_cpu(share: int) -> None:
    chosen = pairs()[share::SHARES]
    found = list(cases(chosen, seed=3))
    assert len(found) == len(chosen)
    bad = [case for case in found if case.outcome not in FINE]
    assert not bad, bad[0]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(40))
def test_elements_of_8_bits_and_fewer_are_those_of_the_cpu(share: int) -> None:
    refused = 0
    for op, dtype in (chosen := derive.pairs()[share::40]):
        program = derive.program(op, dtype, 3, 0)
        try:
            assert not difference_of(program, "strict"), (op, dtype)
        except UnsupportedOp:
            assert cpu_refuses(program, "strict"), (op, dtype)
            refused += 1
    assert refused * 10 < len(chosen)
