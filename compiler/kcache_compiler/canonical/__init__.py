"""Canonicalization: a program becomes the text of its node graph; the text becomes a module again."""

from __future__ import annotations

from kcache_compiler.canonical.canonicalize import canonicalize
from kcache_compiler.canonical.graph import Graph
from kcache_compiler.canonical.render import render
from kcache_compiler.canonical.spec_text import CANONICALIZER_VERSION
from kcache_compiler.canonical.spec_text import parse_spec as parse

__all__ = ["CANONICALIZER_VERSION", "Graph", "canonicalize", "parse", "render"]
