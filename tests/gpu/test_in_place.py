"""Programs that could work in place, in what others still read, give on a GPU, emulated, the CPU's bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.compiler.codegen_harness import compile_text
from tests.gpu.harness.in_place import FINE, judged
from tests.gpu.harness.run import run_gpu
from tests.ops.harness.reference import ReferenceInterpreter


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceInterpreter]:
    interpreter = ReferenceInterpreter()
    yield interpreter
    interpreter.close()


#: Products of all rows with row 60, which is a view of what the first operation writes.
VIEW = """func.func @main() -> tensor<64xf32> {
  %rows = stablehlo.iota dim = 1 : tensor<64x16xf32>
  %row = stablehlo.slice %rows [60:61, 0:16] : (tensor<64x16xf32>) -> tensor<1x16xf32>
  %flat = stablehlo.reshape %row : (tensor<1x16xf32>) -> tensor<16xf32>
  %products = stablehlo.dot_general %rows, %flat, contracting_dims = [1] x [0]
    : (tensor<64x16xf32>, tensor<16xf32>) -> tensor<64xf32>
  return %products : tensor<64xf32>
}"""


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_row_is_read_by_others_after_it_is_written(order: str) -> None:
    (products,) = run_gpu(compile_text(VIEW, "sm_90"), [], order=order)
    np.testing.assert_array_equal(products, np.full(64, 1240, np.float32))


def _require_right(reference: ReferenceInterpreter, numbers: range, opened: bool) -> None:
    results = [judged(number, 3, reference, opened=opened) for number in numbers]
    bad = [case for case in results if case.outcome not in FINE]
    assert not bad, bad[0]
    assert any(case.launches > 1 for case in results)


@pytest.mark.parametrize("programs", [3, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "opened", [pytest.param(False, marks=pytest.mark.long), True], ids=["given sizes", "all sizes"]
)
def test_nothing_is_overwritten_that_is_still_read(
    reference: ReferenceInterpreter, opened: bool, programs: int
) -> None:
    _require_right(reference, range(programs), opened)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("opened", [False, True], ids=["given sizes", "all sizes"])
@pytest.mark.parametrize("first", range(8, 208, 50))
def test_many_programs_overwrite_nothing_that_is_still_read(
    reference: ReferenceInterpreter, first: int, opened: bool
) -> None:
    _require_right(reference, range(first, first + 50), opened)
