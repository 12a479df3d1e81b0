"""A spec back to a module: ``func.func public @main(inputs..., lifted constants...) -> results``."""

from __future__ import annotations

from kcache_compiler.canonical.graph import Graph
from kcache_compiler.canonical.render_stablehlo import LinalgRenderer, StablehloRenderer
from kcache_compiler.canonical.spec_text import parse_spec
from kcache_compiler.errors import UnsupportedOp


def render(spec_text: str) -> str:
    """Return the module text of a spec: StableHLO (with CHLO), or linalg on tensors, after its family."""
    return render_graph(parse_spec(spec_text))


def render_graph(graph: Graph) -> str:
    """Return the module text of a graph."""
    match graph.family:
        case "stablehlo":
            return StablehloRenderer().module(graph.body)
        case "linalg":
            return LinalgRenderer().module(graph.body)
        case family:
            raise UnsupportedOp(family, "no renderer for this family")
