"""Products: MatMul, Gemm, Einsum."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.frontends.onnx.builder import Build, broadcast_dims
from kcache_compiler.frontends.onnx.emitter import FLOATS, Value
from kcache_compiler.frontends.onnx.site import Site, legalizes


@legalizes(MatMul=13)
def matmul(n: Site) -> Value:
    return product(n, n[0], n[1])


def product(n: Site, x: Value, y: Value) -> Value:
    """``numpy.matmul``."""
    if not x.rank or not y.rank:
        n.invalid("a scalar is no matrix")
    b = n.b
    if x.element != y.element:
        n.invalid(f"operands of types {x.type} and {y.type}: elements differ")
    if y.rank <= 2:
        return b.dot(x, y, ([], []), ([x.rank - 1], [0]))
    if x.rank == 1:
        return b.dot(y, x, ([], []), ([y.rank - 2], [0]))
    batch = broadcast_dims(x.dims[:-2], y.dims[:-2])
    count = len(batch)
    x = b.broadcast(x, (*batch, *x.dims[-2:]))
    y = b.broadcast(y, (*batch, *y.dims[-2:]))
    return b.dot(x, y, (range(count), range(count)), ([count + 1], [count]))


@legalizes(Gemm=13)
def gemm(n: Site) -> Value:
    x, y, bias = n[0], n[1], n.get(2)
    alpha, beta = n.float("alpha", 1.0), n.float("beta", 1.0)
    if x.rank != 2 or y.rank != 2:
        n.invalid(f"its operands have shapes {list(x.dims)} and {list(y.dims)}, which are no matrices")
    factors = [alpha] if bias is None else [alpha, beta]
    if x.element not in FLOATS and not all(one.is_integer() and abs(one) < 2**31 for one in factors):
        n.unsupported(
            f"factors {alpha:g} and {beta:g} of {x.element}: how it rounds or wraps the standard does not say"
        )
    over = ([0 if n.int("transA", 0) else 1], [1 if n.int("transB", 0) else 0])
    total = n.b.dot(x, y, ([], []), over)
    if alpha != 1:
        total = n.b.scalar("multiply", total, alpha)
    if bias is None or beta == 0:
        return total
    return n.b.binary("add", total, bias if beta == 1 else n.b.scalar("multiply", bias, beta))


@legalizes(Einsum=28)
def einsum(n: Site) -> Value:
    operands = n.all()
    terms, result = _terms(n, n.text("equation"), operands)
    value, letters = operands[0], terms[0]
    value, letters = _distinct(n, value, letters)
    for index in range(1, len(operands)):
        other, more = _distinct(n, operands[index], terms[index])
        needed = set(result).union(*terms[index + 1 :])
        value, letters = _pair(n.b, (value, letters), (other, more), needed)
    spare = [axis for axis, letter in enumerate(letters) if letter not in result]
    value = n.b.reduce("add", value, spare)
    letters = [letter for letter in letters if letter in result]
    return n.b.transpose(value, [letters.index(letter) for letter in result])


def _terms(n: Site, equation: str, operands: Sequence[Value]) -> tuple[list[list[str]], list[str]]:
    """Return the letters of each operand's axes and of the result's; those of ``...`` are digits."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(operands):
        n.invalid(f"the equation {equation!r} is for {len(texts)} operands, not {len(operands)}")
    terms: list[list[str]] = []
    most = 0
    for text, operand in zip(texts, operands, strict=True):
        before, dots, after = text.partition("...")
        hidden = operand.rank - len(before) - len(after)
        if hidden < 0 or (hidden and not dots) or (not (before + after).isalpha() and before + after):
            n.invalid(f"the equation {equation!r} does not fit an operand of rank {operand.rank}")
        most = max(most, hidden)
        terms.append([*before, *(f"{i}" for i in range(hidden, 0, -1)), *after])
    spread = [f"{i}" for i in range(most, 0, -1)]
    if arrow:
        before, dots, after = right.partition("...")
        result = [*before, *(spread if dots else []), *after]
    else:
        letters = [letter for term in terms for letter in term if letter.isalpha()]
        result = [*spread, *sorted(letter for letter in set(letters) if letters.count(letter) == 1)]
    unknown = set(result).difference(*terms)
    if unknown or len(set(result)) != len(result):
        n.invalid(f"the equation {equation!r} names a result that the operands do not have")
    return terms, result


def _distinct(n: Site, value: Value, letters: list[str]) -> tuple[Value, list[str]]:
    """Take the diagonal of axes with one letter."""
    b = n.b
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            if value.dims[first] != value.dims[second]:
                n.invalid(f"the axes {letter!r} have sizes {value.dims[first]} and {value.dims[second]}")
            on = b.compare("EQ", b.iota("i64", value.dims, first), b.iota("i64", value.dims, second))
            zero = b.full(0, value.element, value.dims)
            value = b.reduce("add", b.select(on, value, zero), [second])
            letters = letters[:second] + letters[second + 1 :]
    return value, letters


def _pair(
    b: Build, one: tuple[Value, list[str]], other: tuple[Value, list[str]], needed: set[str]
) -> tuple[Value, list[str]]:
    """Multiply two operands and sum over what nothing else needs."""
    (x, xs), (y, ys) = one, other
    x, xs = _summed(b, x, xs, needed.union(ys))
    y, ys = _summed(b, y, ys, needed.union(xs))
    # An axis of size 1 stands for any size.
    x, xs = _squeezed(b, x, xs, dict(zip(ys, y.dims, strict=True)))
    y, ys = _squeezed(b, y, ys, dict(zip(xs, x.dims, strict=True)))
    shared = [letter for letter in xs if letter in ys]
    batch = [letter for letter in shared if letter in needed]
    over = [letter for letter in shared if letter not in needed]
    value = b.dot(
        x,
        y,
        ([xs.index(c) for c in batch], [ys.index(c) for c in batch]),
        ([xs.index(c) for c in over], [ys.index(c) for c in over]),
    )
    return value, [*batch, *(c for c in xs if c not in shared), *(c for c in ys if c not in shared)]


def _summed(b: Build, x: Value, letters: list[str], needed: set[str]) -> tuple[Value, list[str]]:
    spare = [axis for axis, letter in enumerate(letters) if letter not in needed]
    return b.reduce("add", x, spare), [letter for letter in letters if letter in needed]


def _squeezed(b: Build, x: Value, letters: list[str], sizes: dict[str, int]) -> tuple[Value, list[str]]:
    kept = [
        (letter, size)
        for letter, size in zip(letters, x.dims, strict=True)
        if size != 1 or sizes.get(letter, 1) == 1
    ]
    return b.reshape(x, tuple(size for _, size in kept)), [letter for letter, _ in kept]
