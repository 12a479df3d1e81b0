"""Cholesky factors and solutions of triangular systems, a row or column a turn of a loop."""

from __future__ import annotations

from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor, real_of


def cholesky(lines: Lines, matrix: Tensor, lower: bool) -> Tensor:
    """The factor of the triangle that is read; 0 in the other."""
    n = matrix.shape[-1]
    flat = _flat(lines, matrix)
    if not lower:
        flat = lines.conjugate(lines.transpose(flat, [0, 2, 1]))

    def column(inner: Lines, position: Tensor, factor: Tensor) -> Tensor:
        """The next column, from those before it."""
        above = inner.conjugate(inner.row(factor, 1, position))
        known = inner.dot(factor, above, 1, (2, 1), factor.shape[:2])
        rest = inner.each("subtract", inner.row(flat, 2, position), known)
        pivot = inner.row(rest, 1, position)
        pivot = inner.part(pivot, "real") if pivot.element.startswith("complex") else pivot
        result = _divided(inner, rest, inner.broadcast(inner.each("sqrt", pivot), rest.shape, [0]))
        here = _places(inner, factor, 2, position, "EQ")
        below = _places(inner, factor, 1, position, "GE")
        return inner.choose(
            inner.each("and", here, below), inner.broadcast(result, factor.shape, [0, 1]), factor
        )

    factor = lines.loop(n, lines.zeros(flat.element, flat.shape), column)
    if not lower:
        factor = lines.conjugate(lines.transpose(factor, [0, 2, 1]))
    return lines.reshape(factor, matrix.shape)


def triangular_solve(
    lines: Lines, a: Tensor, b: Tensor, left: bool, lower: bool, unit: bool, turn: str
) -> Tensor:
    """``x`` with ``op(a) x = b``, or ``x op(a) = b``; ``turn`` says which ``op``."""
    matrix, expected = _flat(lines, a), _flat(lines, b)
    if turn == "ADJOINT":
        matrix = lines.conjugate(matrix)
    if (turn == "NO_TRANSPOSE") != left:  # the transposed system, once or not at all
        matrix, lower = lines.transpose(matrix, [0, 2, 1]), not lower
    if not left:
        expected = lines.transpose(expected, [0, 2, 1])
    n = matrix.shape[-1]
    rows, columns = lines.iota("i32", matrix.shape, 1), lines.iota("i32", matrix.shape, 2)
    inside = lines.compare("GT" if lower else "LT", rows, columns)
    others = lines.choose(inside, matrix, lines.zeros(matrix.element, matrix.shape))

    def row(inner: Lines, position: Tensor, solved: Tensor) -> Tensor:
        """The next row, from those before it."""
        at = position if lower else inner.each("subtract", inner.number(str(n - 1), "i32"), position)
        known = inner.dot(inner.row(others, 1, at), solved, 1, (1, 1), (solved.shape[0], solved.shape[2]))
        rest = inner.each("subtract", inner.row(expected, 1, at), known)
        if not unit:
            pivot = inner.row(inner.row(matrix, 1, at), 1, at)
            rest = inner.each("divide", rest, inner.broadcast(pivot, rest.shape, [0]))
        return inner.choose(
            _places(inner, solved, 1, at, "EQ"), inner.broadcast(rest, solved.shape, [0, 2]), solved
        )

    solved = lines.loop(n, lines.zeros(expected.element, expected.shape), row)
    if not left:
        solved = lines.transpose(solved, [0, 2, 1])
    return lines.reshape(solved, b.shape)


def _flat(lines: Lines, matrix: Tensor) -> Tensor:
    """One batch axis before the two of the matrix."""
    count = 1
    for size in matrix.shape[:-2]:
        count *= size
    return lines.reshape(matrix, (count, *matrix.shape[-2:]))


def _places(lines: Lines, like: Tensor, axis: int, position: Tensor, direction: str) -> Tensor:
    """Where the place along ``axis`` compares so with ``place``."""
    return lines.compare(
        direction, lines.iota("i32", like.shape, axis), lines.broadcast(position, like.shape, [])
    )


def _divided(lines: Lines, value: Tensor, by: Tensor) -> Tensor:
    """Part by part, as ``by`` is real."""
    if not value.element.startswith("complex"):
        return lines.each("divide", value, by)
    assert by.element == real_of(value.element)
    return lines.pair(*(lines.each("divide", lines.part(value, which), by) for which in ("real", "imag")))
