"""Matrix products and Einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kcache_compiler.frontends.onnx.builder import Builder, broadcast_dims
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.reductions import extreme_index
from kcache_compiler.frontends.onnx.ops.sequence.scan_loop import emit_scan_loop
from kcache_compiler.frontends.onnx.ops.vision.sampling import gather_last_axis


@legalize(MatMul=13)
def matmul(n: OnnxNode) -> Value:
    return matrix_product(n, n[0], n[1])


def matrix_product(n: OnnxNode, x: Value, y: Value) -> Value:
    """Return ``numpy.matmul(x, y)``."""
    if not x.rank or not y.rank:
        n.invalid("matrix products do not accept scalars")
    b = n.b
    if x.element != y.element:
        n.invalid(f"operands of types {x.type} and {y.type} differ in element type")
    if y.rank <= 2:
        return b.dot(x, y, ([], []), ([x.rank - 1], [0]))
    if x.rank == 1:
        return b.dot(y, x, ([], []), ([y.rank - 2], [0]))
    batch = broadcast_dims(x.dims[:-2], y.dims[:-2])
    count = len(batch)
    x = b.broadcast(x, (*batch, *x.dims[-2:]))
    y = b.broadcast(y, (*batch, *y.dims[-2:]))
    return b.dot(x, y, (range(count), range(count)), ([count + 1], [count]))


@legalize(Gemm=13)
def gemm(n: OnnxNode) -> Value:
    """Lower ``Gemm``: ``alpha * op(A) @ op(B) + beta * C`` for matrices, where ``op`` optionally transposes.

    Integer matrices require integer factors, else raises ``UnsupportedOp``.
    """
    x, y, bias = n[0], n[1], n.get(2)
    alpha, beta = n.float("alpha", 1.0), n.float("beta", 1.0)
    if x.rank != 2 or y.rank != 2:
        n.invalid(f"its operands have shapes {list(x.dims)} and {list(y.dims)}, and must be matrices")
    factors = [alpha] if bias is None else [alpha, beta]
    if x.element not in FLOATS and not all(factor.is_integer() and abs(factor) < 2**31 for factor in factors):
        n.unsupported(
            f"factors {alpha:g} and {beta:g} of {x.element}, whose rounding the standard does not define"
        )
    contracting = ([0 if n.int("transA", 0) else 1], [1 if n.int("transB", 0) else 0])
    total = n.b.dot(x, y, ([], []), contracting)
    if alpha != 1:
        total = n.b.scalar("multiply", total, alpha)
    if bias is None or beta == 0:
        return total
    return n.b.binary("add", total, bias if beta == 1 else n.b.scalar("multiply", bias, beta))


@legalize(Einsum=28)
def einsum(n: OnnxNode) -> Value:
    operands = n.all()
    terms, result = _parse_equation(n, n.text("equation"), operands)
    value, letters = operands[0], terms[0]
    value, letters = _take_diagonals(n, value, letters)
    for index in range(1, len(operands)):
        operand, operand_letters = _take_diagonals(n, operands[index], terms[index])
        needed_letters = set(result).union(*terms[index + 1 :])
        value, letters = _contract_pair(n.b, (value, letters), (operand, operand_letters), needed_letters)
    summed = [axis for axis, letter in enumerate(letters) if letter not in result]
    value = n.b.reduce("add", value, summed)
    letters = [letter for letter in letters if letter in result]
    return n.b.transpose(value, [letters.index(letter) for letter in result])


def _parse_equation(
    n: OnnxNode, equation: str, operands: Sequence[Value]
) -> tuple[list[list[str]], list[str]]:
    """Return the letters of each operand's axes and of the result's; axes of ``...`` are digits."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    texts = inputs.split(",")
    if len(texts) != len(operands):
        n.invalid(f"the equation {equation!r} is for {len(texts)} operands, not {len(operands)}")
    terms: list[list[str]] = []
    most_hidden = 0
    for text, operand in zip(texts, operands, strict=True):
        before, dots, after = text.partition("...")
        hidden = operand.rank - len(before) - len(after)
        if hidden < 0 or (hidden and not dots) or (not (before + after).isalpha() and before + after):
            n.invalid(f"the equation {equation!r} does not fit an operand of rank {operand.rank}")
        most_hidden = max(most_hidden, hidden)
        terms.append([*before, *(f"{i}" for i in range(hidden, 0, -1)), *after])
    hidden_letters = [f"{i}" for i in range(most_hidden, 0, -1)]
    if arrow:
        before, dots, after = output.partition("...")
        result = [*before, *(hidden_letters if dots else []), *after]
    else:
        letters = [letter for term in terms for letter in term if letter.isalpha()]
        result = [*hidden_letters, *sorted(letter for letter in set(letters) if letters.count(letter) == 1)]
    unknown = set(result).difference(*terms)
    if unknown or len(set(result)) != len(result):
        n.invalid(
            f"the equation {equation!r} has a result with letters that are repeated or not in an operand"
        )
    return terms, result


def _take_diagonals(n: OnnxNode, value: Value, letters: list[str]) -> tuple[Value, list[str]]:
    """Take the diagonal of axes with the same letter."""
    b = n.b
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            if value.dims[first] != value.dims[second]:
                n.invalid(f"the axes {letter!r} have sizes {value.dims[first]} and {value.dims[second]}")
            on_diagonal = b.compare("EQ", b.iota("i64", value.dims, first), b.iota("i64", value.dims, second))
            zero = b.full(0, value.element, value.dims)
            value = b.reduce("add", b.select(on_diagonal, value, zero), [second])
            letters = letters[:second] + letters[second + 1 :]
    return value, letters


def _contract_pair(
    b: Builder, left: tuple[Value, list[str]], right: tuple[Value, list[str]], needed: set[str]
) -> tuple[Value, list[str]]:
    """Contract two operands over the letters that nothing else needs."""
    (x, xs), (y, ys) = left, right
    x, xs = _sum_unneeded(b, x, xs, needed.union(ys))
    y, ys = _sum_unneeded(b, y, ys, needed.union(xs))
    # An axis of size 1 broadcasts.
    x, xs = _squeeze_broadcast(b, x, xs, dict(zip(ys, y.dims, strict=True)))
    y, ys = _squeeze_broadcast(b, y, ys, dict(zip(xs, x.dims, strict=True)))
    shared = [letter for letter in xs if letter in ys]
    batch = [letter for letter in shared if letter in needed]
    contracted = [letter for letter in shared if letter not in needed]
    value = b.dot(
        x,
        y,
        ([xs.index(c) for c in batch], [ys.index(c) for c in batch]),
        ([xs.index(c) for c in contracted], [ys.index(c) for c in contracted]),
    )
    return value, [*batch, *(c for c in xs if c not in shared), *(c for c in ys if c not in shared)]


def _sum_unneeded(b: Builder, x: Value, letters: list[str], needed: set[str]) -> tuple[Value, list[str]]:
    """Sum over the axes whose letters nothing needs."""
    summed = [axis for axis, letter in enumerate(letters) if letter not in needed]
    return b.reduce("add", x, summed), [letter for letter in letters if letter in needed]


def _squeeze_broadcast(
    b: Builder, x: Value, letters: list[str], sizes: dict[str, int]
) -> tuple[Value, list[str]]:
    """Remove axes of size 1 that broadcast against ``sizes``."""
    kept = [
        (letter, size)
        for letter, size in zip(letters, x.dims, strict=True)
        if size != 1 or sizes.get(letter, 1) == 1
    ]
    return b.reshape(x, tuple(size for _, size in kept)), [letter for letter, _ in kept]


@legalize(Det=22)
def det(n: OnnxNode) -> Value:
    """Lower ``Det``: determinants of matrices of shape (..., n, n), by elimination, a column per iteration.

    Elements of 16 bits are computed in f32.
    """
    b, x = n.b, n[0]
    if x.rank < 2 or x.dims[-1] != x.dims[-2] or x.element not in FLOATS:
        n.invalid(f"its input is {x.type}, not square matrices of floats")
    batch, size = math.prod(x.dims[:-2]), x.dims[-1]
    if not batch or not size:
        return b.full(1, x.element, x.dims[:-2])
    wide = b.convert(x, x.element if x.element in ("f32", "f64") else "f32")
    matrices = b.reshape(wide, (batch, size, size))

    def iteration(state: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        return _eliminate_column(n, state[0], state[1], slices[0]), []

    ones = b.full(1, wide.element, (batch,))
    final, _ = emit_scan_loop(b, size, [matrices, ones], [(b.iota("i64", (size,), 0), False)], iteration)
    return b.convert(b.reshape(final[1], x.dims[:-2]), x.element)


def _eliminate_column(n: OnnxNode, x: Value, product: Value, step: Value) -> list[Value]:
    """Swap the row with the largest element of a column to the diagonal and clear the elements below."""
    b, (batch, size, _) = n.b, x.dims
    column = _row_or_column(b, x, b.broadcast_in_dim(step, [], (batch, 1)), columns=True)
    row = b.iota("i64", (batch, size), 1)
    diagonal = b.broadcast_in_dim(step, [], (batch, size))
    below = b.compare("GT", row, diagonal)
    is_candidate = b.compare("GE", row, diagonal)
    magnitudes = b.select(is_candidate, b.unary("abs", column), b.full(-1, x.element, column.dims))
    pivot_index = extreme_index(n, magnitudes, 1, largest=True, last=False)
    pivot_index = b.binary("minimum", pivot_index, constant_value(np.asarray(size - 1, np.int64)))
    pivot_row = b.reshape(pivot_index, (batch, 1))
    pivot_values, diagonal_values = (
        _row_or_column(b, x, pivot_row),
        _row_or_column(b, x, b.broadcast_in_dim(step, [], (batch, 1))),
    )
    wide = b.broadcast_in_dim(diagonal_values, [0, 2], x.dims)
    is_pivot_row = b.broadcast_in_dim(b.compare("EQ", row, pivot_row), [0, 1], x.dims)
    x = b.select(is_pivot_row, wide, x)
    pivot = b.reshape(
        gather_last_axis(b, b.reshape(pivot_values, (batch, 1, size)), _broadcast_step(b, step, batch)),
        (batch,),
    )
    swapped = b.compare("NE", pivot_index, b.broadcast_in_dim(step, [], (batch,)))
    product = b.binary("multiply", product, b.select(swapped, b.unary("negate", pivot), pivot))
    column_values = _row_or_column(b, x, _broadcast_step(b, step, batch), columns=True)
    is_singular = b.compare_to("EQ", pivot, 0)
    divisor = b.select(is_singular, b.full(1, x.element, pivot.dims), pivot)
    factor = b.binary("divide", column_values, b.broadcast_in_dim(divisor, [0], column_values.dims))
    factor = b.select(below, factor, b.full(0, x.element, factor.dims))
    subtrahend = b.binary(
        "multiply",
        b.broadcast_in_dim(factor, [0, 1], x.dims),
        b.broadcast_in_dim(pivot_values, [0, 2], x.dims),
    )
    cleared = b.select(b.broadcast_in_dim(below, [0, 1], x.dims), b.binary("subtract", x, subtrahend), x)
    return [cleared, product]


def _broadcast_step(b: Builder, step: Value, batch: int) -> Value:
    return b.broadcast_in_dim(step, [], (batch, 1))


def _row_or_column(b: Builder, x: Value, index: Value, columns: bool = False) -> Value:
    """Return a row or column of each matrix, by indices of shape (batch, 1)."""
    by_row = x if columns else b.transpose(x, [0, 2, 1])
    return b.reshape(gather_last_axis(b, by_row, index), x.dims[:2])
