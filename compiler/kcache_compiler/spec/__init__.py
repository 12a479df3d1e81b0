"""The spec: canonicalization of programs to the text of a node graph, and rendering of specs as modules."""

from __future__ import annotations

from kcache_compiler.spec.canonicalize import canonicalize
from kcache_compiler.spec.graph.nodes import Graph
from kcache_compiler.spec.rendering.stablehlo import render
from kcache_compiler.spec.text import CANONICALIZER_VERSION
from kcache_compiler.spec.text import parse_spec as parse

__all__ = ["CANONICALIZER_VERSION", "Graph", "canonicalize", "parse", "render"]
