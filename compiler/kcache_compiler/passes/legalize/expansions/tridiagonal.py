"""Tridiagonal systems, a row a turn of a loop. Vectors have one batch axis."""

from __future__ import annotations

from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor, tensor
from kcache_compiler.passes.legalize.expansions.lu_qr import first_of, magnitudes


def tridiagonal_solve(
    lines: Lines, under: Tensor, middle: Tensor, over: Tensor, expected: Tensor
) -> list[Tensor]:
    """``gtsv``: the second diagonal over the pivots from its second place on, the pivots, the diagonal over
    them, the solution, and the first pivot (from 1) that is 0, or 0.

    ``under`` has the number before the pivot of its row, and none in the first; ``over`` has the one behind.
    """
    size = middle.shape[1]
    start = [lines.zeros(middle.element, middle.shape), middle, over, expected]
    first = lines.number("0", "i32")
    rest = [lines.row(vector, 1, first) for vector in (middle, over, expected)]

    def row(inner: Lines, position: Tensor, carried: list[Tensor]) -> list[Tensor]:
        """The pivot of the row is the larger one of what is left of it and of the row behind."""
        kept, left = carried[:4], carried[4:]
        behind = inner.each("add", position, inner.number("1", "i32"))
        below, *other = [inner.row(vector, 1, behind) for vector in (under, middle, over, expected)]
        last = inner.compare("EQ", behind, inner.number(str(size - 1), "i32"))
        nothing = inner.zeros(below.element, below.shape)
        other[1] = inner.choose(inner.broadcast(last, below.shape, []), nothing, other[1])
        result, left = _eliminated(inner, below, left, other)
        return [*(_put(inner, value, new, position) for value, new in zip(kept, result, strict=True)), *left]

    states = lines.turns(size - 1, [*start, *rest], row)
    kept, left = states[:4], states[4:]
    end = lines.number(str(size - 1), "i32")
    second, pivots, upper, sums = kept[0], _put(lines, kept[1], left[0], end), kept[2], kept[3]
    sums = _put(lines, sums, left[2], end)
    zero = lines.compare("EQ", pivots, lines.zeros(pivots.element, pivots.shape))
    nothing = lines.zeros(middle.element, middle.shape[:1])
    solved = _substituted(lines, second, pivots, _put(lines, upper, nothing, end), sums)
    return [_behind(lines, second), pivots, upper, solved, first_of(lines, zero)]


def _eliminated(
    inner: Lines, below: Tensor, left: list[Tensor], other: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The row of the pivot: second number over it, itself, the one over it, the sum; and what is left of the
    other row. ``left`` and ``other`` are the two rows: the first two numbers, and the sum.
    """
    keeps = inner.compare("GE", magnitudes(inner, left[0]), magnitudes(inner, below))
    nothing = inner.zeros(below.element, below.shape)
    pivot = inner.choose(keeps, left[0], below)
    factor = inner.each("divide", inner.choose(keeps, below, left[0]), pivot)
    upper = [(left[1], other[0]), (nothing, other[1]), (left[2], other[2])]
    result: list[Tensor] = []
    rest: list[Tensor] = []
    for mine, its in upper:
        chosen = inner.broadcast(keeps, mine.shape, [0])
        kept = inner.choose(chosen, mine, its)
        less = inner.each("multiply", inner.broadcast(factor, mine.shape, [0]), kept)
        result.append(kept)
        rest.append(inner.each("subtract", inner.choose(chosen, its, mine), less))
    return [result[1], pivot, result[0], result[2]], rest


def _substituted(lines: Lines, second: Tensor, pivots: Tensor, upper: Tensor, sums: Tensor) -> Tensor:
    """The solution, from its last row to its first."""
    size = pivots.shape[1]
    nothing = lines.zeros(sums.element, (sums.shape[0], sums.shape[2]))

    def row(inner: Lines, position: Tensor, carried: list[Tensor]) -> list[Tensor]:
        solved, after, beyond = carried
        at = inner.each("subtract", inner.number(str(size - 1), "i32"), position)
        rest = inner.row(sums, 1, at)
        for diagonal, known in ((upper, after), (second, beyond)):
            number = inner.broadcast(inner.row(diagonal, 1, at), rest.shape, [0])
            rest = inner.each("subtract", rest, inner.each("multiply", number, known))
        result = inner.each("divide", rest, inner.broadcast(inner.row(pivots, 1, at), rest.shape, [0]))
        return [_put(inner, solved, result, at), result, after]

    return lines.turns(size, [sums, nothing, nothing], row)[0]


def _put(lines: Lines, whole: Tensor, row: Tensor, position: Tensor) -> Tensor:
    """``whole`` with ``row`` at a place of its axis 1."""
    new = lines.reshape(row, (whole.shape[0], 1, *whole.shape[2:]))
    zero = lines.number("0", "i32")
    starts = [position.name if axis == 1 else zero.name for axis in range(len(whole.shape))]
    kinds = ", ".join([whole.type, new.type, *[tensor("i32", ())] * len(starts)])
    names = ", ".join([whole.name, new.name, *starts])
    text = f"stablehlo.dynamic_update_slice {names} : ({kinds}) -> {whole.type}"
    return lines.line(text, whole.element, whole.shape)


def _behind(lines: Lines, second: Tensor) -> Tensor:
    """As LAPACK leaves it where the lower diagonal was: its first number is in the second place."""
    if second.shape[1] < 2:
        return second
    nothing = lines.zeros(second.element, (second.shape[0], 1))
    return lines.concatenate([nothing, lines.cut(second, 1, 0, second.shape[1] - 1)], 1)
