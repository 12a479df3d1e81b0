"""The order of loops: which axes of a product are inside."""

from __future__ import annotations

import pytest

from kcache_compiler.schedule.loop_nest import LARGE, Access, Axis, Nest, order_axes


def _product(rows: int, columns: int, depth: int) -> Nest:
    """``c[i, j] += a[i, k] * b[j, k]``."""
    axes = [Axis(size, parallel, (n,)) for n, (size, parallel) in enumerate(((rows, True), (columns, True)))]
    a = Access((depth, 0, 1), 0, written=False)
    b = Access((0, depth, 1), 0, written=False, buffer=1)
    c = Access((columns, 1, 0), 0, written=True, buffer=2)
    return Nest((*axes, Axis(depth, parallel=False, sources=(2,))), (a, b, c))


@pytest.mark.parametrize(
    ("rows", "columns", "order"),
    [
        (4, LARGE // 64, [1, 0, 2]),  # each row of the large operand is read once
        (4, LARGE // 64 - 1, [0, 1, 2]),
        (LARGE // 64, LARGE // 64, [0, 1, 2]),
        (LARGE // 64, 4, [0, 1, 2]),
    ],
)
def test_a_large_operand_is_read_once(rows: int, columns: int, order: list[int]) -> None:
    ordered = order_axes(_product(rows, columns, 64))
    assert [axis.sources[0] for axis in ordered.axes] == order
