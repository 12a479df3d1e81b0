"""Random small graphs: a spec computes what its programs compute, and equal keys mean equal results."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render
from tests.recognition import meaning
from tests.recognition.mutations.random_graphs import SYMBOLS, neighbor, random_template, written

#: Sizes of b, t, c: primes, all equal, coincidences, products of each other.
SIZES = [(2, 3, 5), (2, 2, 2), (3, 2, 2), (2, 3, 3), (3, 2, 6), (6, 3, 2), (4, 2, 2)]


def named(sizes: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(SYMBOLS, sizes, strict=True))


@dataclass
class Pool:
    """Programs by key and arguments, with the results of the first of each."""

    interpreter: meaning.Interpreter
    known: dict[tuple[bytes, str], tuple[str, meaning.Arrays]] = field(
        default_factory=dict[tuple[bytes, str], tuple[str, meaning.Arrays]]
    )
    count: Counter[str] = field(default_factory=Counter[str])

    def add(self, text: str) -> None:
        form = canonicalize(text.encode(), "stablehlo")
        inputs = [np.round(2 * a) for a in meaning.arguments(text, 1)]
        results = self.interpreter(text, inputs)
        again = self.interpreter(render(form.spec_text, form.arg_spec), inputs)
        assert not isinstance(results, str), results
        assert not isinstance(again, str), again
        assert meaning.same(results, again), f"the spec computes something else\n{text}\n{form.spec_text}"
        identity = (form.spec_digest, str(form.arg_spec))
        first, wanted = self.known.setdefault(identity, (text, results))
        assert meaning.same(wanted, results), f"one key, two meanings\n{first}\n{text}"
        self.count["programs"] += 1
        self.count["pairs with one key"] += first != text


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with meaning.Interpreter() as interpreter:
        yield Pool(interpreter)


def check(pool: Pool, seeds: range) -> None:
    """Three nearby graphs a seed, each at three sizes, of few steps or more."""
    for seed in seeds:
        rng = random.Random(seed)
        base = random_template(seed, steps=1 + seed % 6)
        for template in (base, neighbor(base, rng), neighbor(base, rng)):
            for sizes in rng.sample(SIZES, 3):
                pool.add(written(template, named(sizes)))


def test_specs_of_random_graphs_mean_what_they_should(pool: Pool) -> None:
    check(pool, range(18))
    assert pool.count["pairs with one key"] > 0, pool.count


def generalize(interpreter: meaning.Interpreter, seed: int) -> bool:
    """Compare a graph at other sizes with the spec that it has at these; whether that was possible."""
    rng = random.Random(seed)
    template = random_template(seed, steps=2 + seed % 5, numbers=seed % 2 == 0)
    here, there = (named(sizes) for sizes in rng.sample(SIZES, 2))
    other = written(template, there)
    form = canonicalize(written(template, here).encode(), "stablehlo")
    try:
        rendered = render(form.spec_text, canonicalize(other.encode(), "stablehlo").arg_spec)
    except InvalidProgram:
        return False  # a size of the spec is not free
    inputs = [np.round(2 * a) for a in meaning.arguments(other, 1)]
    wanted, actual = interpreter(other, inputs), interpreter(rendered, inputs)
    assert not isinstance(wanted, str), wanted
    assert not isinstance(actual, str), actual
    if [a.shape for a in wanted] != [a.shape for a in actual]:
        return False  # a broadcast that no argument determines keeps its size
    assert meaning.same(wanted, actual), f"seed {seed}: {here} as {there}\n{other}\n{form.spec_text}"
    return True


def test_specs_of_random_graphs_hold_at_other_sizes(pool: Pool) -> None:
    assert sum(generalize(pool.interpreter, seed) for seed in range(40)) > 10


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_specs_of_many_random_graphs_hold_at_other_sizes(pool: Pool, block: int) -> None:
    assert (
        sum(generalize(pool.interpreter, seed) for seed in range(1000 + 80 * block, 1080 + 80 * block)) > 20
    )


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_specs_of_many_random_graphs_mean_what_they_should(pool: Pool, block: int) -> None:
    check(pool, range(1000 + 40 * block, 1040 + 40 * block))
    print(dict(pool.count))
