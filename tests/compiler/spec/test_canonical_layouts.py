"""Random graphs, written twice: once plainly, once with every value stored in another order of its dims.

All sizes are equal, so that nothing but the wiring tells dims apart, and symmetric values are common.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render

SIZE = 3
COMMUTATIVE = ("add", "multiply", "maximum")
ORDERED = ("subtract", "divide")
UNARY = ("tanh", "exponential", "negate")


def tensor(rank: int) -> str:
    return f"tensor<{f'{SIZE}x' * rank}f32>"


class Writer:
    """Writes logical steps as StableHLO; with ``scramble``, in random storage orders, operands swapped."""

    def __init__(self, scramble: random.Random | None) -> None:
        self.scramble = scramble
        self.lines: list[str] = ["%zero = stablehlo.constant dense<0.0> : tensor<f32>"]
        #: logical value -> (name, rank, for each stored dim the logical one)
        self.values: list[tuple[str, int, list[int]]] = []
        self.count = 0

    def emit(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def keep(self, name: str, rank: int) -> None:
        """Store a value that is in logical order."""
        order = list(range(rank))
        if self.scramble:
            self.scramble.shuffle(order)
        self.values.append((self.transposed(name, rank, order), rank, order))

    def transposed(self, name: str, rank: int, order: list[int]) -> str:
        if order == list(range(rank)):
            return name
        return self.emit(f"stablehlo.transpose {name}, dims = {order} : ({tensor(rank)}) -> {tensor(rank)}")

    def read(self, value: int) -> tuple[str, int]:
        """Name a value in logical order."""
        name, rank, order = self.values[value]
        return self.transposed(name, rank, [order.index(d) for d in range(rank)]), rank

    def swap(self) -> bool:
        return self.scramble is not None and self.scramble.random() < 0.5

    def step(self, kind: str, op: str, a: int, b: int, dims: list[int]) -> None:
        x, rank = self.read(a % len(self.values))
        y, other = self.read(b % len(self.values))
        if kind == "transpose":
            self.keep(self.transposed(x, rank, sorted(range(rank), key=lambda d: dims[d])), rank)
        elif kind == "unary":
            self.keep(self.emit(f"stablehlo.{op} {x} : {tensor(rank)}"), rank)
        elif kind == "reduce" and rank > 1:
            where = [dims[0] % rank]
            text = f"stablehlo.reduce({x} init: %zero) applies stablehlo.add across dimensions = {where}"
            self.keep(self.emit(f"{text} : ({tensor(rank)}, tensor<f32>) -> {tensor(rank - 1)}"), rank - 1)
        elif kind == "dot" and rank > 1 and other > 1:
            self.dot(x, rank, y, other, dims)
        else:
            self.binary(op, x, rank, y, other, dims)

    def dot(self, x: str, rank: int, y: str, other: int, dims: list[int]) -> None:
        left, right = dims[0] % rank, dims[1] % other
        result = rank + other - 2
        if result > 3:
            return
        if not self.swap():
            self.keep(self.contraction(x, rank, left, y, other, right), result)
            return
        name = self.contraction(y, other, right, x, rank, left)
        self.keep(self.transposed(name, result, [*range(other - 1, result), *range(other - 1)]), result)

    def contraction(self, x: str, rank: int, left: int, y: str, other: int, right: int) -> str:
        types = f"({tensor(rank)}, {tensor(other)}) -> {tensor(rank + other - 2)}"
        return self.emit(f"stablehlo.dot_general {x}, {y}, contracting_dims = [{left}] x [{right}] : {types}")

    def binary(self, op: str, x: str, rank: int, y: str, other: int, dims: list[int]) -> None:
        if other > rank:
            x, rank, y, other = y, other, x, rank
        if other < rank:
            where = sorted(range(rank), key=lambda d: dims[d])[:other]
            types = f"({tensor(other)}) -> {tensor(rank)}"
            y = self.emit(f"stablehlo.broadcast_in_dim {y}, dims = {where} : {types}")
        if op in COMMUTATIVE and self.swap():
            x, y = y, x
        op = op if op not in UNARY else "add"
        self.keep(self.emit(f"stablehlo.{op} {x}, {y} : {tensor(rank)}"), rank)

    def program(self, ranks: list[int]) -> str:
        name, rank = self.read(len(self.values) - 1)
        arguments = ", ".join(f"%a{i}: {tensor(r)}" for i, r in enumerate(ranks))
        body = "\n  ".join(self.lines)
        type = tensor(rank)
        return f"func.func @main({arguments}) -> {type} {{\n  {body}\n  return {name} : {type}\n}}\n"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("transpose", "unary", "binary", "binary", "binary", "reduce", "dot")),
        st.sampled_from((*COMMUTATIVE, *ORDERED, *UNARY)),
        st.integers(0, 30),
        st.integers(0, 30),
        st.permutations([0, 1, 2]),
    ),
    min_size=2,
    max_size=14,
)


def write(
    ranks: list[int], steps: list[tuple[str, str, int, int, list[int]]], scramble: random.Random | None
) -> str:
    writer = Writer(scramble)
    for i, rank in enumerate(ranks):
        writer.keep(f"%a{i}", rank)
    for kind, op, a, b, dims in steps:
        writer.step(kind, op if kind != "unary" or op in UNARY else "tanh", a, b, list(dims))
    return writer.program(ranks)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=2), STEPS, st.integers(0, 1000))
def test_a_graph_has_one_key_however_its_values_are_stored(ranks: list[int], steps: list, seed: int) -> None:
    form = canonicalize(write(ranks, steps, None).encode(), "stablehlo")
    plain = form.spec_text
    assert canonicalize(write(ranks, steps, random.Random(seed)).encode(), "stablehlo").spec_text == plain
    assert canonicalize(render(plain, form.arg_spec).encode(), "stablehlo").spec_text == plain


@pytest.mark.long
def test_many_graphs_have_one_key_however_their_values_are_stored() -> None:
    rng = random.Random(11)
    kinds = ("transpose", "unary", "binary", "binary", "binary", "reduce", "dot")
    ops = (*COMMUTATIVE, *ORDERED, *UNARY)
    for _ in range(3000):
        ranks = [rng.randint(1, 3) for _ in range(rng.randint(1, 2))]
        steps = [
            (
                rng.choice(kinds),
                rng.choice(ops),
                rng.randrange(30),
                rng.randrange(30),
                rng.sample(range(3), 3),
            )
            for _ in range(rng.randint(2, 16))
        ]
        plain = canonicalize(write(ranks, steps, None).encode(), "stablehlo").spec_text
        assert canonicalize(write(ranks, steps, rng).encode(), "stablehlo").spec_text == plain
