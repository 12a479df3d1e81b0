"""Fourier transforms: axes split into factors, small factors by matrices (Cooley and Tukey, 1965).

The parts of the numbers are tensors of their own. Angles are taken of whole numbers in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor, real_of

#: The largest prime factor of a length: its matrix is made at every call.
LARGEST_PRIME = 4096
#: The largest factor that is taken by a matrix though it is no prime.
_MATRIX = 16


class Parts(NamedTuple):
    """Real and imaginary parts; no imaginary part is 0."""

    re: Tensor
    im: Tensor | None


def transform(lines: Lines, value: Tensor, kind: str, lengths: list[int]) -> Tensor:
    """``stablehlo.fft`` of ``value`` over its last axes."""
    rank, count = len(value.shape), len(lengths)
    axes = list(range(rank - count, rank))
    if kind == "RFFT":
        parts = _along(lines, Parts(value, None), axes[-1], -1)
        parts = _each(lambda part: lines.cut(part, axes[-1], 0, lengths[-1] // 2 + 1), parts)
        axes = axes[:-1]
    else:
        parts = Parts(lines.part(value, "real"), lines.part(value, "imag"))
    last = axes[-1] if kind == "IRFFT" else None
    for axis in axes:
        if axis != last:
            parts = _along(lines, parts, axis, -1 if kind in ("FFT", "RFFT") else 1)
    if last is not None:
        whole = _mirrored(lines, parts, last, lengths[-1])
        parts = Parts(_along(lines, whole, last, 1).re, None)
    if kind in ("IFFT", "IRFFT"):
        parts = _each(lambda part: _scaled(lines, part, 1 / math.prod(lengths)), parts)
    return parts.re if kind == "IRFFT" else lines.pair(parts.re, _imaginary(lines, parts))


def factors(length: int) -> list[int]:
    """Factors up to the size of a matrix, and primes beyond it; what has none below the limit stays whole."""
    results: list[int] = []
    while length > 1:
        small = next((size for size in range(_MATRIX, 1, -1) if length % size == 0), None)
        prime = next((size for size in range(2, LARGEST_PRIME + 1) if length % size == 0), length)
        results.append(small or prime)
        length //= results[-1]
    return results


def _each(change: Callable[[Tensor], Tensor], parts: Parts) -> Parts:
    return Parts(change(parts.re), None if parts.im is None else change(parts.im))


def _imaginary(lines: Lines, parts: Parts) -> Tensor:
    return parts.im or lines.zeros(parts.re.element, parts.re.shape)


def _scaled(lines: Lines, part: Tensor, factor: float) -> Tensor:
    return lines.each("multiply", part, lines.number(f"{factor:.17e}", part.element, part.shape))


def _mirrored(lines: Lines, parts: Parts, axis: int, length: int) -> Parts:
    """The whole spectrum of a real signal from its first half."""
    missing = length - (length // 2 + 1)
    if missing == 0:
        return parts

    def whole(part: Tensor, negate: bool) -> Tensor:
        rest = lines.cut(part, axis, 1, missing + 1)
        rest = lines.line(
            f"stablehlo.reverse {rest.name}, dims = [{axis}] : {rest.type}", rest.element, rest.shape
        )
        rest = lines.each("negate", rest) if negate else rest
        shape = (*part.shape[:axis], length, *part.shape[axis + 1 :])
        result = Tensor("", part.element, shape).type
        types = f"({part.type}, {rest.type}) -> {result}"
        text = f"stablehlo.concatenate {part.name}, {rest.name}, dim = {axis} : {types}"
        return lines.line(text, part.element, shape)

    return Parts(whole(parts.re, False), whole(_imaginary(lines, parts), True))


def _along(lines: Lines, parts: Parts, axis: int, sign: int) -> Parts:
    """The transform along one axis, without a factor."""
    shape = parts.re.shape
    order = [*(position for position in range(len(shape)) if position != axis), axis]
    back = [order.index(position) for position in range(len(shape))]
    transposed = tuple(shape[position] for position in order)
    flat = (math.prod(transposed[:-1]), transposed[-1])
    parts = _each(lambda part: lines.reshape(lines.transpose(part, order), flat), parts)
    parts = _rows(lines, parts, sign)
    return _each(lambda part: lines.transpose(lines.reshape(part, transposed), back), parts)


def _rows(lines: Lines, parts: Parts, sign: int) -> Parts:
    """The transform of each row: by one factor across it, then row by row of what is left."""
    count, length = parts.re.shape
    if length == 1:
        return parts
    first = factors(length)[0]
    if first == length:
        return _by_matrix(lines, parts, sign)
    rest = length // first

    def columns(part: Tensor) -> Tensor:
        split = lines.transpose(lines.reshape(part, (count, first, rest)), [0, 2, 1])
        return lines.reshape(split, (count * rest, first))

    parts = _by_matrix(lines, _each(columns, parts), sign)
    parts = _each(lambda part: lines.reshape(part, (count, rest, first)), parts)
    cosine, sine = _roots(lines, rest, first, length, sign, parts.re.element)
    spread = Parts(*(lines.broadcast(part, (count, rest, first), [1, 2]) for part in (cosine, sine)))
    parts = _product(lines, parts, spread)

    def rows(part: Tensor) -> Tensor:
        return lines.reshape(lines.transpose(part, [0, 2, 1]), (count * first, rest))

    parts = _rows(lines, _each(rows, parts), sign)

    def joined(part: Tensor) -> Tensor:
        split = lines.transpose(lines.reshape(part, (count, first, rest)), [0, 2, 1])
        return lines.reshape(split, (count, length))

    return _each(joined, parts)


def _product(lines: Lines, a: Parts, b: Parts) -> Parts:
    assert b.im is not None
    if a.im is None:
        return Parts(lines.each("multiply", a.re, b.re), lines.each("multiply", a.re, b.im))
    re = lines.each("subtract", lines.each("multiply", a.re, b.re), lines.each("multiply", a.im, b.im))
    im = lines.each("add", lines.each("multiply", a.re, b.im), lines.each("multiply", a.im, b.re))
    return Parts(re, im)


def _by_matrix(lines: Lines, parts: Parts, sign: int) -> Parts:
    """Every row times the matrix of the transform of its length."""
    length = parts.re.shape[1]
    cosine, sine = _roots(lines, length, length, length, sign, parts.re.element)

    def times(part: Tensor, matrix: Tensor) -> Tensor:
        return lines.dot(part, matrix, 0, (1, 0), part.shape)

    if parts.im is None:
        return Parts(times(parts.re, cosine), times(parts.re, sine))
    re = lines.each("subtract", times(parts.re, cosine), times(parts.im, sine))
    im = lines.each("add", times(parts.re, sine), times(parts.im, cosine))
    return Parts(re, im)


def _roots(
    lines: Lines, rows: int, columns: int, length: int, sign: int, element: str
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of ``2 pi row column / length``."""
    shape = (rows, columns)
    product = lines.each("multiply", lines.iota("i64", shape, 0), lines.iota("i64", shape, 1))
    product = lines.each("remainder", product, lines.number(str(length), "i64", shape))
    angle = lines.convert(product, "f64")
    step = lines.number(f"{sign * 2 * math.pi / length:.17e}", "f64", shape)
    angle = lines.each("multiply", angle, step)
    result = [lines.convert(lines.each(op, angle), real_of(element)) for op in ("cosine", "sine")]
    return result[0], result[1]
