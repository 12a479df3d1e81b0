"""Random programs: a spec computes what its program does, reads back as itself, and is no other program's."""

from __future__ import annotations

import random
import re

import pytest

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render
from kcache_compiler.types import TensorType
from tests.compiler.interpreter import evaluate, special
from tests.compiler.random_programs import COMPARISONS, LOGIC, random_program

_OP = re.compile(r'"stablehlo\.(add|subtract|multiply|maximum|minimum|and|or|xor)"')
_DIRECTION = re.compile(r"comparison_direction (EQ|NE|LT|LE|GT|GE)>")
_PERMUTATION = re.compile(r"permutation = array<i64: (\d+), (\d+)")
_NUMBER = re.compile(r"dense<(-?\d+)>")
_OPERANDS = re.compile(r'"\((%[\w#]+), (%[\w#]+)\)  :')


def mutants(text: str, rng: random.Random, count: int) -> list[str]:
    """Programs that differ from ``text`` in one place, and may mean something else."""
    texts: list[str] = []
    for _ in range(count):
        pattern = rng.choice([_OP, _OP, _DIRECTION, _PERMUTATION, _NUMBER, _OPERANDS])
        places = list(pattern.finditer(text))
        if not places:
            continue
        match = rng.choice(places)
        whole, first = match[0], match[1]
        if pattern is _OP:
            changed = whole.replace(first, rng.choice([op for op in LOGIC if op != first]))
        elif pattern is _DIRECTION:
            changed = whole.replace(first, rng.choice([d for d in COMPARISONS if d != first]))
        elif pattern is _NUMBER:
            changed = whole.replace(first, str(int(first) ^ 1))
        else:
            changed = whole.replace(first, "?").replace(match[2], first).replace("?", match[2])
        texts.append(text[: match.start()] + changed + text[match.end() :])
    return texts


def _digest(text: str) -> bytes | None:
    """The key of a mutant; None when it is no program any more."""
    try:
        return canonicalize(text.encode(), "stablehlo").spec_digest
    except InvalidProgram:
        return None


def same_programs(seed: int, mutations: int) -> list[tuple[str, list[str]]]:
    """A random program, its spec and the mutants that have its key, with arguments: one answer for all."""
    program = random_program(seed)
    arguments = [
        special(TensorType(element, dims), seed + i) for i, (element, dims) in enumerate(program.arguments)
    ]
    form = canonicalize(program.text.encode(), "stablehlo")
    again = render(form.spec_text, form.arg_spec)
    assert canonicalize(again.encode(), "stablehlo").spec_text == form.spec_text, program.text
    promoted = random_program(seed, promoted=True)
    assert _digest(promoted.text) == form.spec_digest, program.text
    changed = mutants(program.text, random.Random(seed), mutations)
    same = [mutant for mutant in changed if _digest(mutant) == form.spec_digest]
    return [(text, arguments) for text in (program.text, again, *same)]


def check(seeds: range, mutations: int) -> None:
    groups = [same_programs(seed, mutations) for seed in seeds]
    answers = iter(evaluate([job for group in groups for job in group]))
    for seed, group in zip(seeds, groups, strict=True):
        first, *others = [next(answers) for _ in group]
        for (text, _), answer in zip(group[1:], others, strict=True):
            assert answer == first, f"seed {seed}\n{group[0][0]}\n{text}"


@pytest.mark.sampled(12)
@pytest.mark.parametrize("block", range(4))
def test_random_programs(block: int) -> None:
    check(range(8 * block, 8 * block + 8), 6)


@pytest.mark.long
@pytest.mark.parametrize("block", range(40))
def test_many_random_programs(block: int) -> None:
    check(range(1000 + 25 * block, 1025 + 25 * block), 12)
