"""Random integer programs: one kernel of all sizes, and kernels of given sizes, bit for bit."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.shapes.monomial import evaluate
from kcache_compiler.spec.dynamic_graph import dynamic_graph
from kcache_compiler.spec.text import parse_spec
from kcache_compiler.types import ArgSpec, CompileOptions, TensorType
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.compiler.random_programs import random_program

QUICKLY = CompileOptions(numerics="strict", opt_level=1)
TARGET = "x86-64-v2"
SIZES = (0, 1, 2, 3, 5, 7)


def _kernel(spec_text: str, args: tuple[TensorType, ...]) -> Kernel | None:
    """None where an operation has no lowering."""
    try:
        return Kernel(compile_spec(spec_text, ArgSpec(args), TARGET, QUICKLY, lambda _: None))
    except UnsupportedOp:
        return None


def _shape(kind: TensorType) -> tuple[int, ...]:
    return tuple(int(dim) for dim in kind.dims)


def _agree(seed: int, tuples: int) -> int:
    """How often both kernels were compared."""
    canonical = canonicalize(random_program(seed).text.encode(), "stablehlo", "strict")
    graph, generator = parse_spec(canonical.spec_text), random.Random(seed)
    if not canonical.symbols or _kernel(canonical.spec_text, canonical.arg_spec.args) is None:
        return 0
    of_all = _kernel(canonical.spec_text, canonical.symbolic_args)
    assert of_all is not None, "what compiles at its sizes compiles for all"
    limits, values = dynamic_graph(graph).sizes.limits, np.random.default_rng(seed)
    compared = 0
    for turn in range(tuples):
        own = dict(enumerate(canonical.symbol_values))
        sizes = {index: generator.choice(SIZES) for index in own} if turn else own
        if any(evaluate(a, sizes) > evaluate(b, sizes) for a, b in limits):
            continue
        args = [
            TensorType(kind.element, tuple(evaluate(dim, sizes) for dim in kind.dims or ()))
            for kind in graph.body.params
        ]
        static = _kernel(canonical.spec_text, tuple(args))
        if static is None:  # windows over nothing
            continue
        arrays = [
            np.asarray(values.integers(0, 2 if kind.dtype == "i1" else 9, _shape(kind)), NUMPY[kind.dtype])
            for kind in args
        ]
        arrays += [
            np.frombuffer(constant.content, NUMPY[constant.type.dtype]).reshape(_shape(constant.type))
            for constant in canonical.constants
        ]
        for got, expected in zip(of_all(*arrays), static(*arrays), strict=True):
            assert got.shape == expected.shape
            assert got.tobytes() == expected.tobytes(), f"seed {seed} at {sizes}"
        compared += 1
    return compared


@pytest.mark.parametrize("seeds", [(12, 20), pytest.param((13, 28), marks=pytest.mark.long)])
def test_random_programs(seeds: tuple[int, ...]) -> None:
    """With open sizes, and without operations that have no lowering."""
    assert sum(_agree(seed, 3) for seed in seeds) >= 4


@pytest.mark.long
def test_many_random_programs() -> None:
    assert sum(_agree(seed, 4) for seed in range(200)) >= 150
