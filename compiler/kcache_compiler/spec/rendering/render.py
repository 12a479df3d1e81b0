"""Rendering of a spec as a module: ``func.func public @main(inputs..., lifted constants...) -> results``."""

from __future__ import annotations

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.spec.graph.nodes import Graph
from kcache_compiler.spec.instantiate import instantiate
from kcache_compiler.spec.rendering.stablehlo import LinalgRenderer, StablehloRenderer
from kcache_compiler.spec.specialize import fixed_sizes
from kcache_compiler.spec.text import parse_spec
from kcache_compiler.types import ArgSpec


def render(spec_text: str, args: ArgSpec) -> str:
    """Return the module text of a spec for these arguments: StableHLO (with CHLO), or linalg on tensors."""
    graph = parse_spec(spec_text)
    return render_graph(instantiate(graph, fixed_sizes(graph, args)))


def render_graph(graph: Graph) -> str:
    """Return the module text of a graph."""
    match graph.family:
        case "stablehlo":
            return StablehloRenderer().module(graph.body)
        case "linalg":
            return LinalgRenderer().module(graph.body)
        case family:
            raise UnsupportedOp(family, "no renderer for this family")
