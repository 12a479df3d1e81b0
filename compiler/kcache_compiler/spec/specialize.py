"""Specialization of a spec for an arg spec: the sizes that it fixes, and the graph that is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.shapes.monomial import evaluate, factors, is_symbolic, size_text
from kcache_compiler.spec.dynamic_graph import computes_sizes, substitute_all
from kcache_compiler.spec.graph.nodes import Graph
from kcache_compiler.spec.instantiate import instantiate
from kcache_compiler.types import ArgSpec


def fixed_sizes(graph: Graph, args: ArgSpec) -> dict[int, int]:
    """Return the static sizes of symbols, by index; the other symbols remain.

    Raises ``InvalidProgram`` if the arg spec contradicts the spec, naming argument and axis.
    """
    params = graph.body.params
    if len(params) != len(args.args):
        raise InvalidProgram(f"the spec has {len(params)} arguments, the arg spec {len(args.args)}")
    fixed: dict[int, int] = {}
    for index, (param, arg) in enumerate(zip(params, args.args, strict=True)):
        dims = param.dims or ()
        if param.element != arg.dtype or len(dims) != len(arg.dims):
            raise InvalidProgram(
                f"argument {index} is {arg}, the spec has {param.element} of rank {len(dims)}"
            )
        for size, dim in zip(dims, arg.dims, strict=True):
            coefficient, symbols = factors(size)
            if coefficient == 1 and len(symbols) == 1 and isinstance(dim, int):
                fixed.setdefault(symbols[0], dim)
    for index, (param, arg) in enumerate(zip(params, args.args, strict=True)):
        for axis, (size, dim) in enumerate(zip(param.dims or (), arg.dims, strict=True)):
            expected = evaluate(size, fixed)
            if isinstance(dim, int) and is_symbolic(expected):
                raise InvalidProgram(
                    f"argument {index} has size {dim} along axis {axis}, where the spec has "
                    f"{size_text(size)}: give the sizes of its symbols, or make it dynamic"
                )
            if isinstance(dim, int) and dim != expected:
                raise InvalidProgram(
                    f"argument {index} has size {dim} along axis {axis}, where the spec has "
                    f"{size_text(size)}{'' if expected == size else f' = {expected}'}"
                )
    return fixed


def specialize(graph: Graph, sizes: Mapping[int, int]) -> Graph:
    """Return the graph to compile for static sizes of some symbols, by index.

    It is built again, which merges values that are equal at these sizes and drops axes of size 1. Axes may be
    reordered, and with them reductions. Under ``strict``, nodes are kept, so that a kernel of static shape
    gives the bits of a dynamic one.
    """
    if graph.numerics == "strict" and not computes_sizes(graph.body):
        return substitute_all(graph, sizes)
    return instantiate(graph, sizes)
