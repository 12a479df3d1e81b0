"""Random programs of every operation and dtype give on a GPU, emulated, the bits of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler.errors import UnsupportedOp
from tests.gpu.harness.exact import exact
from tests.gpu.harness.generated import FINE, cases, cpu_rejects, difference_of
from tests.ops.generated.operations.catalog import pairs
from tests.ops.generated.small import derive
from tests.ops.harness.programs import OpProgram

#: Shares of all pairs of operation and dtype; CI has one of them.
SHARES = 80


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "share", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, SHARES))]
)
def test_generated_programs_give_the_bits_of_the_cpu(share: int) -> None:
    chosen = pairs()[share::SHARES]
    results = list(cases(chosen, seed=3))
    assert len(results) == len(chosen)
    bad = [case for case in results if case.outcome not in FINE]
    assert not bad, bad[0]


def test_a_sum_that_a_cpu_rounds_at_each_step_is_judged_by_f64() -> None:
    values = np.linspace(-3, 3.1, 801).astype("<f4").view("<u4") >> 16
    text = """func.func @main(%x: tensor<801xbf16>) -> tensor<bf16> {
      %zero = stablehlo.constant dense<0.0> : tensor<bf16>
      %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<801xbf16>, tensor<bf16>) -> tensor<bf16>
      return %r : tensor<bf16> }"""
    whole = OpProgram("reduce", "bf16", text, [values.astype("<u2").tobytes()], ["bf16"])
    (wanted,) = exact(whole) or [b""]
    total = (values.astype("<u4") << 16).view("<f4").astype("f8").sum()
    np.testing.assert_allclose(np.frombuffer(wanted, "f8"), [total], rtol=1e-12)
    assert not difference_of(whole, "default")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(40))
def test_elements_of_8_bits_and_fewer_are_those_of_the_cpu(share: int) -> None:
    rejected = 0
    for op, dtype in (chosen := derive.pairs()[share::40]):
        program = derive.program(op, dtype, 3, 0)
        try:
            assert not difference_of(program, "strict"), (op, dtype)
        except UnsupportedOp:
            assert cpu_rejects(program, "strict"), (op, dtype)
            rejected += 1
    assert rejected * 10 < len(chosen)
