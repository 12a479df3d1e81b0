"""Eigenvalues of Hermitian matrices and singular values by rotations (Jacobi, one-sided for the latter).

A turn rotates pairs of axes that have none in common, as rounds of a tournament pair players; a sweep is a
turn for every round. Matrices have one batch axis. Eigenvectors and singular vectors are unique up to a
factor of length 1 each, which is not the one that LAPACK happens to give.
"""

from __future__ import annotations

from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor, real_of, tensor
from kcache_compiler.passes.legalize.expansions.lu_qr import (
    fold,
    identity,
    largest,
    norm,
    orthogonal,
    qr,
    scaled,
    unit,
    within,
)

#: Most sweeps; some ten do.
_SWEEPS = 40
_EPSILON = {"f32": 2.0**-23, "f64": 2.0**-52}
#: Largest numbers of matrices that are taken as they are.
_FAR = {"f32": 2.0**20, "f64": 2.0**200}
#: Parts of the largest singular value that are nothing: their squares are lost when added to its square.
_NOTHING = {"f32": 2.0**-40, "f64": 2.0**-300}


def eigen(lines: Lines, matrix: Tensor, lower: bool) -> list[Tensor]:
    """``syevd``: eigenvectors as columns, eigenvalues rising, 1 where numbers are not finite."""
    whole = hermitian(lines, matrix, lower)
    size = whole.shape[1]
    real = real_of(whole.element)
    largest = fold(lines, "maximum", _magnitude(lines, whole), [1, 2], "0.0")
    limit = lines.each("multiply", largest, lines.number(repr(_EPSILON[real] / 16), real, largest.shape))

    def turn(inner: Lines, position: Tensor, carried: list[Tensor]) -> list[Tensor]:
        """One round: rows, then columns of the matrix, and columns of the vectors."""
        now, vectors, moved, _ = carried
        others, earlier = _partners(inner, position, size)
        met = inner.compare("EQ", inner.iota("i32", now.shape, 2), inner.broadcast(others, now.shape, [1]))
        crossed = inner.choose(met, now, inner.zeros(now.element, now.shape))
        off = _agreed(inner, inner.total(crossed, [2]), others, earlier)
        mine = diagonal(inner, now)
        cosine, sine = _rotation(inner, mine, _taken(inner, mine, others), off, others, earlier)
        rows = _rotated(inner, now, others, cosine, sine)
        columns = inner.transpose(rows, [0, 2, 1])
        rotated = _rotated(inner, columns, others, cosine, inner.conjugate(sine))
        rotated = inner.transpose(rotated, [0, 2, 1])
        idle = inner.compare("EQ", others, inner.iota("i32", others.shape, 0))
        busy = inner.each("not", idle)
        gone = inner.each("and", met, inner.broadcast(busy, met.shape, [1]))
        rotated = inner.choose(gone, inner.zeros(now.element, now.shape), rotated)
        vectors = _rotated(inner, vectors, others, cosine, inner.conjugate(sine))
        large = inner.compare("GT", _magnitude(inner, off), inner.broadcast(limit, (off.shape[0], size), [0]))
        large = inner.each("and", large, inner.broadcast(busy, large.shape, [1]))
        return [rotated, vectors, *_going(inner, large, moved, position, size)]

    start = [whole, identity(lines, whole.element, whole.shape), *_begun(lines)]
    now, vectors, _, _ = lines.turns(_SWEEPS * _rounds(size), start, turn, while_last=True)
    values = diagonal(lines, now)
    order = _order(lines, values, descending=False)
    vectors = lines.transpose(_sorted(lines, order, vectors), [0, 2, 1])
    return [vectors, _sorted_values(lines, order, values), _not_finite(lines, whole)]


def singular(lines: Lines, matrix: Tensor, mode: str) -> list[Tensor]:
    """``gesdd``: singular values in falling order, U, V adjoint, 1 where numbers are not finite.

    ``mode`` is A for all of U and V, S for as many columns as there are singular values.
    """
    rows, columns = matrix.shape[1:]
    if rows < columns:
        adjoint = lines.conjugate(lines.transpose(matrix, [0, 2, 1]))
        values, left, right, bad = singular(lines, adjoint, mode)
        swapped = [lines.conjugate(lines.transpose(factor, [0, 2, 1])) for factor in (right, left)]
        return [values, *swapped, bad]
    scale = _scale(lines, matrix)
    packed, taus = qr(lines, scaled(lines, "divide", matrix, scale, [0]))
    top = lines.cut(packed, 1, 0, columns)
    upper = lines.compare("LE", lines.iota("i32", top.shape, 1), lines.iota("i32", top.shape, 2))
    triangle = lines.choose(upper, top, lines.zeros(top.element, top.shape))
    values, inner_left, right = _one_sided(lines, triangle)
    count = rows if mode == "A" else columns
    first = orthogonal(lines, packed, taus, count)
    left = _product(lines, lines.cut(first, 2, 0, columns), inner_left)
    if count > columns:
        left = lines.concatenate([left, lines.cut(first, 2, columns, count)], 2)
    return [scaled(lines, "multiply", values, scale, [0]), left, right, _not_finite(lines, matrix)]


def _scale(lines: Lines, matrix: Tensor) -> Tensor:
    """What to divide matrices by whose squares might be too large or too small; 1 for others."""
    top = largest(lines, matrix, [1, 2])
    far, one = _FAR[top.element], unit(lines, top.element, top.shape)
    large = lines.compare("GT", top, lines.number(repr(far), top.element, top.shape))
    small = lines.compare("LT", top, lines.number(repr(1 / far), top.element, top.shape))
    return lines.choose(lines.each("or", large, small), within(lines, top), one)


def _one_sided(lines: Lines, square: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular values, U and V adjoint of a square matrix."""
    size = square.shape[1]
    real = real_of(square.element)
    tolerance = _EPSILON[real] * max(2.0, 2.0 * size**0.5)

    def turn(inner: Lines, position: Tensor, carried: list[Tensor]) -> list[Tensor]:
        """One round: pairs of columns become orthogonal."""
        now, vectors, moved, _ = carried
        others, earlier = _partners(inner, position, size)
        partner = _gathered(inner, now, others)
        off = inner.total(inner.each("multiply", inner.conjugate(now), partner), [2])
        off = _agreed(inner, off, others, earlier)
        squares = inner.each("multiply", *[norm(inner, now)] * 2)
        cosine, sine = _rotation(inner, squares, _taken(inner, squares, others), off, others, earlier)
        sine = inner.conjugate(sine)
        length = inner.each("multiply", norm(inner, now), norm(inner, partner))
        bound = inner.each("multiply", length, inner.number(repr(tolerance), real, length.shape))
        large = inner.compare("GT", _magnitude(inner, off), bound)
        idle = inner.compare("EQ", others, inner.iota("i32", others.shape, 0))
        busy = inner.each("not", inner.broadcast(idle, large.shape, [1]))
        now = _rotated(inner, now, others, cosine, sine)
        vectors = _rotated(inner, vectors, others, cosine, sine)
        return [now, vectors, *_going(inner, inner.each("and", large, busy), moved, position, size)]

    start = [lines.transpose(square, [0, 2, 1]), identity(lines, square.element, square.shape)]
    start = [*start, *_begun(lines)]
    now, vectors, _, _ = lines.turns(_SWEEPS * _rounds(size), start, turn, while_last=True)
    values = norm(lines, now)
    order = _order(lines, values, descending=True)
    now, values = _sorted(lines, order, now), _sorted_values(lines, order, values)
    most = fold(lines, "maximum", values, [1], "0.0")
    least = lines.each("multiply", most, lines.number(repr(_NOTHING[real]), real, most.shape))
    none = lines.compare("LE", values, lines.broadcast(least, values.shape, [0]))
    by = _as(lines, lines.choose(none, unit(lines, real, values.shape), values), square.element)
    result = lines.each("divide", now, lines.broadcast(by, now.shape, [0, 1]))
    left = lines.transpose(result, [0, 2, 1])
    packed, taus = qr(lines, left)
    filled = orthogonal(lines, packed, taus, size)
    left = lines.choose(lines.broadcast(none, left.shape, [0, 2]), filled, left)
    return values, left, lines.conjugate(_sorted(lines, order, vectors))


def hermitian(lines: Lines, matrix: Tensor, lower: bool) -> Tensor:
    """The matrix that one of its triangles says."""
    rows, columns = lines.iota("i32", matrix.shape, 1), lines.iota("i32", matrix.shape, 2)
    other = lines.conjugate(lines.transpose(matrix, [0, 2, 1]))
    whole = lines.choose(lines.compare("GE" if lower else "LE", rows, columns), matrix, other)
    if not matrix.element.startswith("complex"):
        return whole
    real = _as(lines, lines.part(whole, "real"), whole.element)
    return lines.choose(lines.compare("EQ", rows, columns), real, whole)


def _rounds(size: int) -> int:
    return max(1, size if size % 2 else size - 1)


def _partners(lines: Lines, position: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Whom each axis meets in this round, itself where nobody; whether it is the earlier of the two."""
    modulus = _rounds(size)
    around = lines.number(str(modulus), "i32")
    number = lines.each("remainder", position, around)
    mine = lines.iota("i32", (size,), 0)
    all_around = lines.number(str(modulus), "i32", (size,))
    spread = lines.broadcast(number, (size,), [])
    raised = lines.each("add", lines.each("subtract", spread, mine), all_around)
    others = lines.each("remainder", raised, all_around)
    if size % 2 == 0:
        last = lines.number(str(size - 1), "i32", (size,))
        others = lines.choose(lines.compare("EQ", others, mine), last, others)
        half = lines.number(str(size // 2), "i32", (size,))
        met = lines.each("remainder", lines.each("multiply", spread, half), all_around)
        others = lines.choose(lines.compare("EQ", mine, last), met, others)
    return others, lines.compare("LT", mine, others)


def _rotation(
    lines: Lines, mine: Tensor, partner: Tensor, off: Tensor, others: Tensor, earlier: Tensor
) -> tuple[Tensor, Tensor]:
    """The cosine, and the sine times the phase, by which each row and its partner's make ``off`` 0.

    Computed in f64 and rounded once: what is a bit too long in each of thousands of rotations adds up.
    """
    element, real = off.element, real_of(off.element)
    mine, partner = lines.convert(mine, "f64"), lines.convert(partner, "f64")
    off = lines.convert(off, element.replace(real, "f64"))
    size = _magnitude(lines, off)
    nothing = lines.zeros(size.element, size.shape)
    one = lines.number("1.0", size.element, size.shape)
    idle = lines.compare("EQ", others, lines.iota("i32", others.shape, 0))
    none = lines.each("or", lines.compare("EQ", size, nothing), lines.broadcast(idle, size.shape, [1]))
    by = lines.choose(none, one, size)
    ratio = lines.each("divide", lines.each("subtract", partner, mine), lines.each("add", by, by))
    length = lines.each("sqrt", lines.each("add", lines.each("multiply", ratio, ratio), one))
    tangent = lines.each("divide", one, lines.each("add", lines.each("abs", ratio), length))
    first = lines.broadcast(earlier, size.shape, [1])
    ahead = lines.compare("GT", ratio, nothing)
    even = lines.each("and", lines.compare("EQ", ratio, nothing), first)
    positive = lines.each("or", ahead, even)
    tangent = lines.choose(positive, tangent, lines.each("negate", tangent))
    tangent = lines.choose(none, nothing, tangent)
    squared = lines.each("add", lines.each("multiply", tangent, tangent), one)
    cosine = lines.each("divide", one, lines.each("sqrt", squared))
    sine = lines.each("multiply", tangent, cosine)
    phase = lines.each("divide", off, _as(lines, by, off.element))
    rotated = lines.each("multiply", _as(lines, sine, off.element), phase)
    return _as(lines, lines.convert(cosine, real), element), lines.convert(rotated, element)


def _rotated(lines: Lines, rows: Tensor, others: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """``cosine * row - sine * partner's row``."""
    kept = lines.each("multiply", lines.broadcast(cosine, rows.shape, [0, 1]), rows)
    partner = _gathered(lines, rows, others)
    taken = lines.each("multiply", lines.broadcast(sine, rows.shape, [0, 1]), partner)
    return lines.each("subtract", kept, taken)


def _gathered(lines: Lines, rows: Tensor, others: Tensor) -> Tensor:
    """The rows of the second axis in another order."""
    batch, _, width = rows.shape
    numbers = (
        "#stablehlo.gather<offset_dims = [0, 2], collapsed_slice_dims = [1], "
        "start_index_map = [1], index_vector_dim = 1>"
    )
    text = (
        f'"stablehlo.gather"({rows.name}, {others.name}) <{{dimension_numbers = {numbers}, '
        f"slice_sizes = array<i64: {batch}, 1, {width}>}}> : ({rows.type}, {others.type}) -> {rows.type}"
    )
    return lines.line(text, rows.element, rows.shape)


def _agreed(lines: Lines, off: Tensor, others: Tensor, earlier: Tensor) -> Tensor:
    """What the earlier of two says, for both: rotations by numbers that differ in a bit are none."""
    theirs = lines.conjugate(_taken(lines, off, others))
    return lines.choose(lines.broadcast(earlier, off.shape, [1]), off, theirs)


def _taken(lines: Lines, values: Tensor, others: Tensor) -> Tensor:
    rows = lines.reshape(values, (*values.shape, 1))
    return lines.reshape(_gathered(lines, rows, others), values.shape)


def _begun(lines: Lines) -> list[Tensor]:
    return [lines.number("false", "i1"), lines.number("true", "i1")]


def _going(lines: Lines, large: Tensor, moved: Tensor, position: Tensor, size: int) -> list[Tensor]:
    """Whether this sweep has rotated anything, and whether to go on: not after one that has not."""
    any_ = fold(lines, "or", large, [0, 1], "false")
    modulus = lines.number(str(_rounds(size)), "i32")
    number = lines.each("remainder", position, modulus)
    begins = lines.compare("EQ", number, lines.number("0", "i32"))
    ends = lines.compare("EQ", number, lines.number(str(_rounds(size) - 1), "i32"))
    before = lines.each("and", moved, lines.each("not", begins))
    now = lines.each("or", before, any_)
    return [now, lines.each("or", now, lines.each("not", ends))]


def _order(lines: Lines, values: Tensor, descending: bool) -> Tensor:
    """Matrices of 0 and 1 that put ``values`` in order, equal ones as they come."""
    batch, size = values.shape
    shape = (batch, size, size)
    mine, other = lines.broadcast(values, shape, [0, 1]), lines.broadcast(values, shape, [0, 2])
    before = lines.compare("GT" if descending else "LT", other, mine)
    numbers = lines.compare("LT", lines.iota("i32", shape, 2), lines.iota("i32", shape, 1))
    tied = lines.each("and", lines.compare("EQ", other, mine), numbers)
    ahead = lines.convert(lines.each("or", before, tied), "i32")
    rank = lines.broadcast(lines.total(ahead, [2]), shape, [0, 2])
    return lines.convert(lines.compare("EQ", rank, lines.iota("i32", shape, 1)), values.element)


def _sorted(lines: Lines, order: Tensor, rows: Tensor) -> Tensor:
    return _product(lines, _as(lines, order, rows.element), rows)


def _sorted_values(lines: Lines, order: Tensor, values: Tensor) -> Tensor:
    return lines.dot(order, values, 1, (2, 1), values.shape)


def _product(lines: Lines, left: Tensor, right: Tensor) -> Tensor:
    return lines.dot(left, right, 1, (2, 1), (left.shape[0], left.shape[1], right.shape[2]))


def diagonal(lines: Lines, matrix: Tensor, below: int = 0) -> Tensor:
    """The real part of the diagonal, by row, or of the one that is so far below it, after 0."""
    real = lines.part(matrix, "real") if matrix.element.startswith("complex") else matrix
    columns = lines.iota("i32", real.shape, 2)
    if below:
        columns = lines.each("add", columns, lines.number(str(below), "i32", real.shape))
    here = lines.compare("EQ", lines.iota("i32", real.shape, 1), columns)
    return lines.total(lines.choose(here, real, lines.zeros(real.element, real.shape)), [2])


def _magnitude(lines: Lines, numbers: Tensor) -> Tensor:
    real = real_of(numbers.element)
    text = f"stablehlo.abs {numbers.name} : ({numbers.type}) -> {tensor(real, numbers.shape)}"
    return lines.line(text, real, numbers.shape)


def _as(lines: Lines, real: Tensor, element: str) -> Tensor:
    """Real numbers as complex ones where these are wanted."""
    if not element.startswith("complex"):
        return real
    return lines.pair(real, lines.zeros(real.element, real.shape))


def _not_finite(lines: Lines, matrix: Tensor) -> Tensor:
    """1 where a matrix has NaN or infinities, else 0."""
    complex_ = matrix.element.startswith("complex")
    parts = [lines.part(matrix, which) for which in ("real", "imag")] if complex_ else [matrix]
    bad: list[Tensor] = []
    for part in parts:
        text = f"stablehlo.is_finite {part.name} : ({part.type}) -> {tensor('i1', part.shape)}"
        bad.append(lines.each("not", lines.line(text, "i1", part.shape)))
    whole = bad[0] if len(bad) == 1 else lines.each("or", *bad)
    return lines.convert(fold(lines, "or", whole, [1, 2], "false"), "i32")
