"""Which sizes an arg spec gives the symbols of a spec, and the graph that is compiled for them."""

from __future__ import annotations

from collections.abc import Mapping

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.shapes.monomial import evaluate, factors, is_symbolic, size_text
from kcache_compiler.spec.dynamic_samples import computes_sizes, substitute_all
from kcache_compiler.spec.graph.nodes import Graph
from kcache_compiler.spec.instantiate import instantiate
from kcache_compiler.types import ArgSpec


def fixed_sizes(graph: Graph, args: ArgSpec) -> dict[int, int]:
    """Return the sizes of the symbols, by index, that the arg spec fixes; the others stay open.

    Raises ``InvalidProgram`` where the arg spec contradicts the spec, naming argument and axis.
    """
    params = graph.body.params
    if len(params) != len(args.args):
        raise InvalidProgram(f"the spec has {len(params)} arguments, the arg spec {len(args.args)}")
    fixed: dict[int, int] = {}
    for index, (param, given) in enumerate(zip(params, args.args, strict=True)):
        dims = param.dims or ()
        if param.element != given.dtype or len(dims) != len(given.dims):
            raise InvalidProgram(
                f"argument {index} is {given}, the spec has {param.element} of rank {len(dims)}"
            )
        for size, dim in zip(dims, given.dims, strict=True):
            coefficient, symbols = factors(size)
            if coefficient == 1 and len(symbols) == 1 and isinstance(dim, int):
                fixed.setdefault(symbols[0], dim)
    for index, (param, given) in enumerate(zip(params, args.args, strict=True)):
        for axis, (size, dim) in enumerate(zip(param.dims or (), given.dims, strict=True)):
            wanted = evaluate(size, fixed)
            if isinstance(dim, int) and is_symbolic(wanted):
                raise InvalidProgram(
                    f"argument {index} has size {dim} along axis {axis}, where the spec has "
                    f"{size_text(size)}: give the sizes that it is made of, or leave it open"
                )
            if isinstance(dim, int) and dim != wanted:
                raise InvalidProgram(
                    f"argument {index} has size {dim} along axis {axis}, where the spec has "
                    f"{size_text(size)}{'' if wanted == size else f' = {wanted}'}"
                )
    return fixed


def specialized(graph: Graph, sizes: Mapping[int, int]) -> Graph:
    """Return the graph to compile for these sizes of its symbols, by index; the others stay open.

    It is built again, so that what is one at these sizes is computed once, and axes of size 1 are gone. That
    may give axes another order, and sums run in the order of axes: under ``strict`` every node stays as it
    is, so that a kernel for given sizes has the bits of one for all.
    """
    if graph.numerics == "strict" and not computes_sizes(graph.body):
        return substitute_all(graph, sizes)
    return instantiate(graph, sizes)
