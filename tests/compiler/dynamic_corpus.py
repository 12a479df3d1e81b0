"""The corpus' graphs as kernels of all sizes, and the sizes and arguments that they are tried with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.shapes.monomial import evaluate, is_symbolic, size_text
from kcache_compiler.spec.dynamic_graph import dynamic_graph
from kcache_compiler.spec.graph.nodes import Graph
from kcache_compiler.spec.text import parse_spec
from kcache_compiler.types import ArgSpec, Canonical, CompileOptions, TensorType
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.recognition.eager.arguments import draw
from tests.recognition.exports.corpus import NAMES, read

#: This machine's level.
TARGET = host_target().isa
#: Graphs with an operation that has no lowering yet, at any size.
#: Its one symbol takes too few sizes for what these tests draw.
FEW_SIZES = "cross_entropy"
COMPILED = [name for name in NAMES if name != FEW_SIZES]

#: Sizes that are drawn: of each rest by 4 and 8, and around 16.
_SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17)

Array = Any
Sizes = dict[int, int]


@dataclass(frozen=True)
class Case:
    """A graph of the corpus: its spec, its kernel of all sizes, its constants."""

    name: str
    graph: Graph
    canonical: Canonical
    options: CompileOptions
    kernel: Kernel
    constants: tuple[Array, ...]

    def sizes(self, seed: int) -> Iterator[Sizes]:
        """Sizes of all symbols, without end and none twice: now and then one is 0, or all are equal."""
        generator = random.Random(f"{self.name} {seed}")
        limits = dynamic_graph(self.graph).sizes.limits
        symbols = range(len(self.canonical.symbols))
        seen: set[tuple[int, ...]] = set()
        while True:
            drawn = [generator.choice(_SIZES) for _ in symbols]
            special = generator.random()
            if special < 0.1:
                drawn[generator.choice(symbols)] = 0
            elif special < 0.15:
                drawn = [drawn[0]] * len(drawn)
            elif special < (0.7 if len(drawn) < 3 else 0.2):
                drawn[generator.choice(symbols)] = generator.randrange(2, max(16, 512 >> len(drawn)))
            sizes = dict(enumerate(drawn))
            if tuple(drawn) not in seen and all(evaluate(a, sizes) <= evaluate(b, sizes) for a, b in limits):
                seen.add(tuple(drawn))
                yield sizes

    def types(self, sizes: Sizes) -> tuple[TensorType, ...]:
        """The arguments at these sizes; symbols that are not given stay open."""

        def dim(size: int) -> int | str:
            value = evaluate(size, sizes)
            return size_text(value) if is_symbolic(value) else value

        return tuple(
            TensorType(kind.element, tuple(map(dim, kind.dims or ()))) for kind in self.graph.body.params
        )

    def arguments(self, sizes: Sizes, seed: int) -> list[Array]:
        """The program's arguments; kernels take the constants after them."""
        generator = np.random.default_rng(seed)
        return [
            draw(self.name, position, tuple(map(int, kind.dims)), NUMPY[kind.dtype], generator)
            for position, kind in enumerate(self.types(sizes))
        ]

    def kernel_at(self, sizes: Sizes) -> Kernel:
        """The kernel of these sizes, and of all sizes of the symbols that are not given; same options."""
        return _compile(self.canonical, ArgSpec(self.types(sizes)), self.options)

    def with_spec(self, spec_text: str) -> Case:
        """The same arguments, with the kernel of another spec."""
        canonical = replace(self.canonical, spec_text=spec_text)
        return replace(self, kernel=_compile(canonical, ArgSpec(canonical.symbolic_args), self.options))


def _compile(canonical: Canonical, args: ArgSpec, options: CompileOptions) -> Kernel:
    return Kernel(compile_spec(canonical.spec_text, args, TARGET, options, lambda _: None))


@cache
def case(name: str, numerics: str = "strict") -> Case:
    """A graph of the corpus, compiled."""
    canonical = canonicalize(read(name).texts[1].encode(), "stablehlo", numerics)
    options = CompileOptions(numerics=numerics)
    constants = tuple(
        np.frombuffer(constant.content, NUMPY[constant.type.dtype]).reshape(
            [int(dim) for dim in constant.type.dims]
        )
        for constant in canonical.constants
    )
    kernel = _compile(canonical, ArgSpec(canonical.symbolic_args), options)
    return Case(name, parse_spec(canonical.spec_text), canonical, options, kernel, constants)
