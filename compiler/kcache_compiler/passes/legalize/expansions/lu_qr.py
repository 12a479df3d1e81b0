"""LU and QR factors as LAPACK packs them, a column a turn of a loop. Matrices have one batch axis."""

from __future__ import annotations

from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor, real_of, tensor

#: Neither these nor one divided by them lose anything.
_MOST = {"f32": 2.0**126, "f64": 2.0**1022}
#: Columns of smaller numbers are made larger before they are reflected.
_SMALL = {"f32": 2.0**-60, "f64": 2.0**-500}
#: The place of nothing, the same one for axes of all sizes.
_NONE = str(2**31 - 1)


def lu(lines: Lines, matrix: Tensor) -> list[Tensor]:
    """``getrf``: both factors in one matrix, the row (from 1) that each row changed places with, and the
    first pivot (from 1) that is 0, or 0.
    """
    batch, rows, columns = matrix.shape
    count = min(rows, columns)

    def column(inner: Lines, position: Tensor, carried: list[Tensor]) -> list[Tensor]:
        """The next column: the largest number below becomes the pivot."""
        packed, pivots = carried
        sizes = magnitudes(inner, inner.row(packed, 2, position))
        below = at(inner, sizes, 1, position, "GE")
        sizes = inner.choose(below, sizes, inner.number("-1.0", sizes.element, sizes.shape))
        top = inner.broadcast(fold(inner, "maximum", sizes, [1], "0xFF800000"), sizes.shape, [0])
        numbers = inner.iota("i32", sizes.shape, 1)
        none = inner.number(_NONE, "i32", sizes.shape)
        first = inner.choose(inner.compare("EQ", sizes, top), numbers, none)
        chosen = fold(inner, "minimum", first, [1], _NONE)
        here = inner.broadcast(position, chosen.shape, [])
        beyond = inner.number(_NONE, "i32", chosen.shape)
        chosen = inner.choose(inner.compare("EQ", chosen, beyond), here, chosen)
        packed = _eliminated(inner, _exchanged(inner, packed, position, chosen), position)
        later = inner.broadcast(
            inner.each("add", chosen, inner.number("1", "i32", chosen.shape)), pivots.shape, [0]
        )
        return [packed, inner.choose(at(inner, pivots, 1, position, "EQ"), later, pivots)]

    start = [matrix, lines.number("0", "i32", (batch, count))]
    packed, pivots = lines.turns(count, start, column)
    diagonal = lines.choose(_diagonal(lines, packed), packed, lines.zeros(packed.element, packed.shape))
    diagonal = lines.cut(lines.total(diagonal, [2]), 1, 0, count)
    zeros = lines.compare("EQ", diagonal, lines.zeros(diagonal.element, diagonal.shape))
    return [packed, pivots, first_of(lines, zeros)]


def exchanged(lines: Lines, matrix: Tensor, pivots: Tensor) -> Tensor:
    """``laswp``: each row in turn changes places with the one (from 1) that ``lu`` chose for it."""

    def row(inner: Lines, position: Tensor, carried: list[Tensor]) -> list[Tensor]:
        """The next row."""
        chosen = inner.row(pivots, 1, position)
        first = inner.number("1", chosen.element, chosen.shape)
        return [_exchanged(inner, carried[0], position, inner.each("subtract", chosen, first))]

    return lines.turns(pivots.shape[1], [matrix], row)[0]


def _exchanged(inner: Lines, packed: Tensor, position: Tensor, chosen: Tensor) -> Tensor:
    """The row at ``place`` and the one that each matrix has ``chosen`` change places."""
    expected = inner.broadcast(chosen, packed.shape, [0])
    there = inner.compare("EQ", inner.iota("i32", packed.shape, 1), expected)
    picked = inner.total(inner.choose(there, packed, inner.zeros(packed.element, packed.shape)), [1])
    old = inner.broadcast(inner.row(packed, 1, position), packed.shape, [0, 2])
    moved = inner.choose(there, old, packed)
    here = at(inner, packed, 1, position, "EQ")
    return inner.choose(here, inner.broadcast(picked, packed.shape, [0, 2]), moved)


def _eliminated(inner: Lines, packed: Tensor, position: Tensor) -> Tensor:
    """The column at ``place`` below its pivot divided by it, and its multiples taken from those after it."""
    row = inner.row(packed, 1, position)
    column = inner.row(packed, 2, position)
    pivot = inner.broadcast(inner.row(row, 1, position), column.shape, [0])
    zero = inner.compare("EQ", pivot, inner.zeros(pivot.element, pivot.shape))
    factor = inner.choose(zero, column, inner.each("divide", column, pivot))
    factor = inner.broadcast(factor, packed.shape, [0, 1])
    product = inner.each("multiply", factor, inner.broadcast(row, packed.shape, [0, 2]))
    below = at(inner, packed, 1, position, "GT")
    after = inner.each("and", below, at(inner, packed, 2, position, "GT"))
    here = inner.each("and", below, at(inner, packed, 2, position, "EQ"))
    result = inner.choose(after, inner.each("subtract", packed, product), packed)
    return inner.choose(here, factor, result)


def qr(lines: Lines, matrix: Tensor) -> list[Tensor]:
    """``geqrf``: R and, below it, the reflections without their 1; their factors."""
    batch, rows, columns = matrix.shape
    count = min(rows, columns)

    def column(inner: Lines, position: Tensor, carried: list[Tensor]) -> list[Tensor]:
        """Reflect the next column to its first axis, and those after it with it."""
        packed, taus = carried
        vector, beta, tau = _reflection(inner, inner.row(packed, 2, position), position)
        known = inner.dot(inner.conjugate(vector), packed, 1, (1, 1), (batch, columns))
        moved = _subtract_outer(inner, packed, inner.conjugate(tau), vector, known)
        result = inner.choose(at(inner, packed, 2, position, "GT"), moved, packed)
        here = at(inner, packed, 2, position, "EQ")
        on = inner.each("and", here, at(inner, packed, 1, position, "EQ"))
        under = inner.each("and", here, at(inner, packed, 1, position, "GT"))
        result = inner.choose(under, inner.broadcast(vector, packed.shape, [0, 1]), result)
        result = inner.choose(on, inner.broadcast(beta, packed.shape, [0]), result)
        spread = inner.broadcast(tau, taus.shape, [0])
        return [result, inner.choose(at(inner, taus, 1, position, "EQ"), spread, taus)]

    return lines.turns(count, [matrix, lines.zeros(matrix.element, (batch, count))], column)


def hessenberg(lines: Lines, matrix: Tensor) -> list[Tensor]:
    """``gehrd`` of whole matrices: the similar one that is 0 below the first subdiagonal, and there the
    reflections without their 1; their factors.
    """
    batch, size, _ = matrix.shape

    def column(inner: Lines, position: Tensor, carried: list[Tensor]) -> list[Tensor]:
        """Reflect the next column to the axis behind its own, and all that is right of it from both sides."""
        packed, taus = carried
        start = inner.each("add", position, inner.number("1", "i32"))
        vector, beta, tau = _reflection(inner, inner.row(packed, 2, position), start)
        after = at(inner, packed, 2, position, "GT")
        moved = inner.choose(after, packed, inner.zeros(packed.element, packed.shape))
        known = inner.dot(moved, vector, 1, (2, 1), (batch, size))
        moved = _subtract_outer(inner, moved, tau, known, inner.conjugate(vector))
        known = inner.dot(inner.conjugate(vector), moved, 1, (1, 1), (batch, size))
        moved = _subtract_outer(inner, moved, inner.conjugate(tau), vector, known)
        result = inner.choose(after, moved, packed)
        here = at(inner, packed, 2, position, "EQ")
        on = inner.each("and", here, at(inner, packed, 1, start, "EQ"))
        under = inner.each("and", here, at(inner, packed, 1, start, "GT"))
        result = inner.choose(under, inner.broadcast(vector, packed.shape, [0, 1]), result)
        result = inner.choose(on, inner.broadcast(beta, packed.shape, [0]), result)
        spread = inner.broadcast(tau, taus.shape, [0])
        return [result, inner.choose(at(inner, taus, 1, position, "EQ"), spread, taus)]

    return lines.turns(size - 1, [matrix, lines.zeros(matrix.element, (batch, size - 1))], column)


def _reflection(inner: Lines, column: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The vector whose reflection leaves of ``column`` one number; that number; the factor."""
    below, here = at(inner, column, 1, position, "GT"), at(inner, column, 1, position, "EQ")
    zeros = inner.zeros(column.element, column.shape)
    top = largest(inner, inner.choose(at(inner, column, 1, position, "GE"), column, zeros), [1])
    small = inner.compare("LT", top, inner.number(repr(_SMALL[top.element]), top.element, top.shape))
    scale = inner.choose(small, within(inner, top), unit(inner, top.element, top.shape))
    column = scaled(inner, "divide", column, scale, [0])
    alpha = inner.row(column, 1, position)
    length = norm(inner, inner.choose(at(inner, column, 1, position, "GE"), column, zeros))
    rest = norm(inner, inner.choose(below, column, zeros))
    complex_ = column.element.startswith("complex")
    first = inner.part(alpha, "real") if complex_ else alpha
    nothing = inner.zeros(first.element, first.shape)
    beta = inner.choose(inner.compare("GE", first, nothing), inner.each("negate", length), length)
    flat = inner.compare("EQ", rest, nothing)
    if complex_:
        straight = inner.compare("EQ", inner.part(alpha, "imag"), nothing)
        flat = inner.each("and", flat, straight)
        beta = inner.pair(beta, nothing)
    beta = inner.choose(flat, alpha, beta)
    difference = inner.each("subtract", beta, alpha)
    one = unit(inner, alpha.element, alpha.shape)
    none = inner.zeros(alpha.element, alpha.shape)
    tau = inner.choose(flat, none, inner.each("divide", difference, inner.choose(flat, one, beta)))
    by = inner.choose(flat, one, inner.each("negate", difference))
    vector = inner.each("divide", column, inner.broadcast(by, column.shape, [0]))
    vector = inner.choose(below, vector, zeros)
    vector = inner.choose(here, unit(inner, column.element, column.shape), vector)
    return vector, scaled(inner, "multiply", beta, scale, [0]), tau


def _subtract_outer(inner: Lines, matrix: Tensor, tau: Tensor, vector: Tensor, row: Tensor) -> Tensor:
    """``matrix - tau * vector * row``."""
    scaled = inner.each("multiply", inner.broadcast(tau, vector.shape, [0]), vector)
    left = inner.broadcast(scaled, matrix.shape, [0, 1])
    product = inner.each("multiply", left, inner.broadcast(row, matrix.shape, [0, 2]))
    return inner.each("subtract", matrix, product)


def orthogonal(lines: Lines, packed: Tensor, taus: Tensor, columns: int) -> Tensor:
    """``orgqr``: the first columns of the product of the reflections of ``qr``."""
    batch, rows, _ = packed.shape
    count = taus.shape[1]

    def apply(inner: Lines, turn: Tensor, carried: list[Tensor]) -> list[Tensor]:
        """One reflection more, the last first."""
        (result,) = carried
        position = inner.each("subtract", inner.number(str(count - 1), "i32"), turn)
        column = inner.row(packed, 2, position)
        below, here = at(inner, column, 1, position, "GT"), at(inner, column, 1, position, "EQ")
        vector = inner.choose(below, column, inner.zeros(column.element, column.shape))
        vector = inner.choose(here, unit(inner, column.element, column.shape), vector)
        known = inner.dot(inner.conjugate(vector), result, 1, (1, 1), (batch, columns))
        return [_subtract_outer(inner, result, inner.row(taus, 1, position), vector, known)]

    return lines.turns(count, [identity(lines, packed.element, (batch, rows, columns))], apply)[0]


def norm(lines: Lines, vectors: Tensor) -> Tensor:
    """Lengths along the last axis, without overflow."""
    axis = len(vectors.shape) - 1
    scale = within(lines, largest(lines, vectors, [axis]))
    even = scaled(lines, "divide", vectors, scale, list(range(axis)))
    squares = [lines.each("multiply", part, part) for part in _parts(lines, even)]
    total = squares[0] if len(squares) == 1 else lines.each("add", *squares)
    return lines.each("multiply", scale, lines.each("sqrt", lines.total(total, [axis])))


def largest(lines: Lines, numbers: Tensor, axes: list[int]) -> Tensor:
    """The largest size of a part along some axes."""
    tops = [fold(lines, "maximum", lines.each("abs", part), axes, "0.0") for part in _parts(lines, numbers)]
    return tops[0] if len(tops) == 1 else lines.each("maximum", *tops)


def within(lines: Lines, top: Tensor) -> Tensor:
    """``top`` where one divided by it is a normal number, else what is next to it."""
    most = _MOST[top.element]
    low = lines.number(repr(1 / most), top.element, top.shape)
    return lines.each(
        "minimum", lines.each("maximum", top, low), lines.number(repr(most), top.element, top.shape)
    )


def scaled(lines: Lines, op: str, numbers: Tensor, scale: Tensor, dims: list[int]) -> Tensor:
    """Numbers multiplied or divided by real ones, whose axes are ``dims`` of theirs."""
    by = lines.broadcast(scale, numbers.shape, dims)
    result = [lines.each(op, part, by) for part in _parts(lines, numbers)]
    return result[0] if len(result) == 1 else lines.pair(*result)


def _parts(lines: Lines, numbers: Tensor) -> list[Tensor]:
    if not numbers.element.startswith("complex"):
        return [numbers]
    return [lines.part(numbers, which) for which in ("real", "imag")]


def magnitudes(lines: Lines, numbers: Tensor) -> Tensor:
    """What pivots are chosen by."""
    if not numbers.element.startswith("complex"):
        return lines.each("abs", numbers)
    parts = (lines.each("abs", lines.part(numbers, which)) for which in ("real", "imag"))
    return lines.each("add", *parts)


def at(lines: Lines, like: Tensor, axis: int, position: Tensor, direction: str) -> Tensor:
    """Where the place along ``axis`` compares so with ``place``."""
    return lines.compare(
        direction, lines.iota("i32", like.shape, axis), lines.broadcast(position, like.shape, [])
    )


def _diagonal(lines: Lines, like: Tensor) -> Tensor:
    return lines.compare("EQ", lines.iota("i32", like.shape, 1), lines.iota("i32", like.shape, 2))


def identity(lines: Lines, element: str, shape: tuple[int, ...]) -> Tensor:
    """Matrices with 1 on the diagonal."""
    zeros = lines.zeros(element, shape)
    return lines.choose(_diagonal(lines, zeros), unit(lines, element, shape), zeros)


def unit(lines: Lines, element: str, shape: tuple[int, ...]) -> Tensor:
    """Nothing but 1."""
    if not element.startswith("complex"):
        return lines.number("1.0", element, shape)
    return lines.pair(lines.number("1.0", real_of(element), shape), lines.zeros(real_of(element), shape))


def first_of(lines: Lines, flags: Tensor) -> Tensor:
    """The first place (from 1) along the last axis that is true, or 0."""
    numbers = lines.iota("i32", flags.shape, len(flags.shape) - 1)
    none = lines.number(_NONE, "i32", flags.shape)
    position = fold(lines, "minimum", lines.choose(flags, numbers, none), [len(flags.shape) - 1], _NONE)
    later = lines.each("add", position, lines.number("1", "i32", position.shape))
    missing = lines.compare("EQ", position, lines.number(_NONE, "i32", position.shape))
    return lines.choose(missing, lines.number("0", "i32", position.shape), later)


def fold(lines: Lines, op: str, value: Tensor, dims: list[int], start: str) -> Tensor:
    """``value`` reduced along ``dims`` by an operation."""
    if start == "0xFF800000" and value.element == "f64":
        start = "0xFFF0000000000000"
    init = lines.number(start, value.element)
    shape = tuple(size for axis, size in enumerate(value.shape) if axis not in dims)
    text = (
        f"stablehlo.reduce({value.name} init: {init.name}) applies stablehlo.{op} across dimensions = "
        f"[{', '.join(map(str, dims))}] : ({value.type}, {init.type}) -> {tensor(value.element, shape)}"
    )
    return lines.line(text, value.element, shape)
