"""Graphs through the real path: message, worker's decoder, canonical form, shared object, call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kcache_compiler import Limits, canonicalize, compile_spec
from kcache_compiler.frontends.graph.lower import lower_graph
from kcache_compiler.types import Canonical, CompiledKernel, CompileOptions
from kcache_grpc import Graph
from kcache_grpc.graph import Value
from kcache_grpc.runtime.dtypes import numpy_dtype
from kcache_grpc.worker.child.graph_program import decode_graph
from tests.ops.harness import native
from tests.ops.harness.reference import ReferenceInterpreter

#: Makes of a graph and its inputs one result or several.
Build = Callable[..., Any]
LIMITS = Limits()


def graph_of(build: Build, arrays: Sequence[np.ndarray], dims: Sequence[Any] = ()) -> Graph:
    """The graph that ``build`` makes of inputs like ``arrays``; ``dims`` replaces their shapes."""
    graph = Graph()
    shapes = dims or [array.shape for array in arrays]
    values = [
        graph.input(f"x{index}", array.dtype, shape)
        for index, (array, shape) in enumerate(zip(arrays, shapes, strict=True))
    ]
    outputs = build(graph, *values)
    graph.output(*([outputs] if isinstance(outputs, Value) else outputs))
    return graph


def text_of(graph: Graph) -> str:
    """The StableHLO that a graph is lowered to."""
    return lower_graph(decode_graph(graph.to_bytes(), LIMITS), LIMITS)


def canonical_of(graph: Graph, numerics: str = "default") -> Canonical:
    """The canonical form of a graph."""
    return canonicalize(decode_graph(graph.to_bytes(), LIMITS), "graph", numerics)


def digest_of(graph: Graph, numerics: str = "default") -> bytes:
    """What decides about the key."""
    return canonical_of(graph, numerics).spec_digest


def digest_of_text(text: str, numerics: str = "default") -> bytes:
    """The same of a StableHLO text."""
    return canonicalize(text.encode(), "stablehlo", numerics).spec_digest


def compiled(canonical: Canonical) -> CompiledKernel:
    """The kernel of a canonical form, for the sizes of the program."""
    options = CompileOptions(opt_level=1)
    return compile_spec(canonical.spec_text, canonical.arg_spec, "x86-64-v2", options, lambda _: None)


def run(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile and call."""
    canonical = canonical_of(graph)
    kernel = compiled(canonical)
    constants = [constant.content for constant in canonical.constants]
    results = native.run(kernel, [array.tobytes() for array in arrays], constants)
    return [
        np.frombuffer(data, numpy_dtype(type.dtype)).reshape(type.dims)
        for data, type in zip(results, canonical.results, strict=True)
    ]


def interpret(
    interpreter: ReferenceInterpreter, graph: Graph, arrays: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """What the StableHLO reference interpreter makes of the lowered text."""
    types = canonical_of(graph).results
    results = interpreter.evaluate(text_of(graph), [array.tobytes() for array in arrays])
    return [
        np.frombuffer(data, numpy_dtype(type.dtype)).reshape(type.dims)
        for data, type in zip(results, types, strict=True)
    ]
