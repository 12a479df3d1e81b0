"""Graphs of the corpus at random sizes: one kernel against NumPy, and against kernels of given sizes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.canonical.graph import Graph
from kcache_compiler.canonical.open_sizes import open_graph
from kcache_compiler.canonical.sizes import evaluate
from kcache_compiler.canonical.spec_text import parse_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import ArgSpec, Canonical, CompileOptions, TensorType
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.compiler.numpy_graph import evaluate_graph
from tests.recognition.corpus import NAMES, read

STRICT = CompileOptions(numerics="strict")
TARGET = "x86-64-v2"
#: Graphs with an operation that has no lowering yet, at any size.
REFUSED = {"cross_entropy": "stablehlo.scatter"}
#: The quick ones, for every change; all of them in the long run.
QUICK = ("softmax", "layer_norm", "rotary", "conv_block", "gpt_logits")

Array = Any


@dataclass(frozen=True)
class Case:
    """A graph of the corpus: its spec, its kernel of all sizes, its constants."""

    graph: Graph
    canonical: Canonical
    kernel: Kernel
    constants: tuple[Array, ...]

    def sizes(self, generator: random.Random) -> dict[int, int]:
        """Sizes of all symbols; small ones often."""
        limits = open_graph(self.graph).limits
        while True:
            drawn = {
                index: generator.choice((0, 1, 1, 2, 3, 5, 8, 9))
                for index in range(len(self.canonical.symbols))
            }
            if all(evaluate(a, drawn) <= evaluate(b, drawn) for a, b in limits):
                return drawn

    def arguments(self, sizes: dict[int, int], seed: int) -> list[Array]:
        generator = np.random.default_rng(seed)
        found: list[Array] = []
        for kind in self.graph.body.params:
            shape = tuple(evaluate(dim, sizes) for dim in kind.dims or ())
            dtype = NUMPY[kind.element]
            drawn = (
                generator.integers(0, 4, shape)
                if np.dtype(dtype).kind in "iub"
                else generator.uniform(0.1, 1, shape)
            )
            found.append(np.asarray(drawn).astype(dtype))
        return [*found, *self.constants]


@cache
def _case(name: str) -> Case:
    canonical = canonicalize(read(name).texts[1].encode(), "stablehlo", "strict")
    compiled = compile_spec(
        canonical.spec_text, ArgSpec(canonical.symbolic_args), TARGET, STRICT, lambda _: None
    )
    constants = tuple(
        np.frombuffer(one.content, NUMPY[one.type.dtype]).reshape([int(dim) for dim in one.type.dims])
        for one in canonical.constants
    )
    return Case(parse_spec(canonical.spec_text), canonical, Kernel(compiled), constants)


def _agree(name: str, count: int) -> None:
    case, generator = _case(name), random.Random(name)
    for seed in range(count):
        sizes = case.sizes(generator)
        arguments = case.arguments(sizes, seed)
        expected = evaluate_graph(case.graph, sizes, arguments)
        for got, wanted in zip(case.kernel(*arguments), expected, strict=True):
            finite = np.abs(wanted[np.isfinite(wanted)])
            scale = max(1.0, float(finite.max())) if finite.size else 1.0
            np.testing.assert_allclose(
                got, wanted, rtol=1e-3, atol=1e-4 * scale, err_msg=f"{name} at {sizes}"
            )


@pytest.mark.parametrize("name", QUICK)
def test_a_kernel_of_all_sizes_agrees_with_numpy(name: str) -> None:
    _agree(name, 40)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_a_kernel_of_all_sizes_agrees_with_numpy_on_a_thousand(name: str) -> None:
    _agree(name, 1000)


def _same_bits(name: str, count: int) -> None:
    case, generator = _case(name), random.Random(name)
    for seed in range(count):
        sizes = case.sizes(generator)
        args = [
            TensorType(kind.element, tuple(evaluate(dim, sizes) for dim in kind.dims or ()))
            for kind in case.graph.body.params
        ]
        try:
            static = Kernel(
                compile_spec(case.canonical.spec_text, ArgSpec(tuple(args)), TARGET, STRICT, lambda _: None)
            )
        except UnsupportedOp:  # windows over nothing
            assert 0 in sizes.values()
            continue
        arguments = case.arguments(sizes, seed)
        for got, wanted in zip(case.kernel(*arguments), static(*arguments), strict=True):
            assert got.shape == wanted.shape
            assert got.tobytes() == wanted.tobytes(), f"{name} at {sizes}"


@pytest.mark.parametrize("name", QUICK)
def test_kernels_of_given_sizes_give_the_same_bits(name: str) -> None:
    _same_bits(name, 2)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_kernels_of_twenty_given_sizes_give_the_same_bits(name: str) -> None:
    _same_bits(name, 20)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_lowering_has_none_for_open_sizes(name: str) -> None:
    with pytest.raises(UnsupportedOp) as refusal:
        _case(name)
    assert refusal.value.op == REFUSED[name]
