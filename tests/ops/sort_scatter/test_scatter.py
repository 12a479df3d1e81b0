"""Scatters over all of their dimension numbers give what the reference interpreter gives, to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.reference import ReferenceInterpreter
from tests.ops.harness.values import generator, random_bytes
from tests.ops.sort_scatter.scatter_programs import Scatter, scatter

KINDS = (
    ("i32", "ordered"),
    ("f32", "add"),
    ("ui8", "ordered"),
    ("f64", "set"),
    ("bf16", "add"),
    ("i64", "maximum"),
    ("f16", "multiply"),
    ("c64", "add"),
)


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceInterpreter]:
    interpreter = ReferenceInterpreter()
    yield interpreter
    interpreter.close()


def check(program: Scatter, seed: int, reference: ReferenceInterpreter) -> None:
    """Compile and compare one program under numerics ``strict``."""
    rng = generator("scattered", seed)
    values = [
        random_bytes(rng, program.dtype, math.prod(shape), "tame")
        for shape in (program.operand, program.updates)
    ]
    inputs = [values[0], program.index_bytes(seed), values[1]]
    canonical = canonicalize(program.text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    kernel = compile_spec(canonical.spec_text, canonical.arg_spec, "x86-64-v3", options, lambda _: None)
    got = run(kernel, inputs, [constant.content for constant in canonical.constants])
    expected = reference.evaluate(program.text, inputs)
    wrong = difference(program.dtype, got[0], expected[0], 0.0)
    assert not wrong, f"{wrong}\n{program.text}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_random_scatters_agree_with_the_reference_interpreter(
    seed: int, reference: ReferenceInterpreter
) -> None:
    check(scatter(seed, *KINDS[seed % len(KINDS)]), seed, reference)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40, 1000))
def test_many_random_scatters_agree_with_the_reference_interpreter(
    seed: int, reference: ReferenceInterpreter
) -> None:
    check(scatter(seed, *KINDS[seed % len(KINDS)]), seed, reference)
