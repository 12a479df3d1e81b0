"""A graph program to a verified native module."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.lower import lower_graph, open_axes
from kcache_compiler.frontends.graph.program import GraphProgram
from kcache_compiler.frontends.graph.values import NeedsSizes
from kcache_compiler.frontends.imported import Imported
from kcache_compiler.frontends.limits import Limits
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

_NAME = re.compile(r'loc\("((?:[^"\\]|\\.)*)"')


def read_graph(program: bytes | GraphProgram, limits: Limits) -> Native | Imported:
    """Return the StableHLO module of a graph; with open axes one at sample sizes, and how to get others.

    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``, naming the node.
    """
    if isinstance(program, bytes):
        raise InvalidProgram(
            "the compiler takes a graph as a GraphProgram: decode the message kcache.v1.Graph first "
            "(kcache_grpc.worker does)"
        )
    axes = open_axes(program)
    if not axes:
        return _parsed(lower_graph(program, limits))
    # Lowered dynamically first: it says everything that is wrong with the graph.
    dynamic = lower_graph(program, limits)
    symbols = list(dict.fromkeys(axes.values()))
    samples = [dict(zip(symbols, _sizes(program, number), strict=False)) for number in range(2)]
    try:
        one, other = (lower_graph(program, limits, sizes) for sizes in samples)
    except NeedsSizes:
        return _parsed(dynamic)
    return Imported(
        _parsed(one), open_axes=axes, others=(lambda: _parsed(other),), dynamic=lambda: _parsed(dynamic)
    )


def _sizes(program: GraphProgram, sample: int) -> Iterator[int]:
    """Yield sizes for open axes: no two alike, none that the inputs have, all of many divisors."""
    taken = set(_stated(program))
    return (size for size in itertools.count(48 + 720 * sample, 24) if size not in taken)


def _stated(program: GraphProgram) -> Iterable[int]:
    for given in program.inputs:
        yield from (dim for dim in given.dims if isinstance(dim, int))
    for constant in program.constants:
        yield from constant.value.dims


def _parsed(text: str) -> Native:
    try:
        return mlir.parse_module(text, mlir.new_context())
    except mlir.mlir_error() as error:
        raise InvalidProgram(_explain(error)) from None


def _explain(error: Exception) -> str:
    """What StableHLO's own verifier found where ours found nothing, and at which node."""
    native: Native = error
    found = [(str(d.location), str(d.message).strip()) for d in native.error_diagnostics][:1]
    place, message = found[0] if found else ("", str(error))
    name = _NAME.search(place)
    where = f"the node that makes {name[1]!r}" if name else "the graph"
    return f"StableHLO refuses {where}: {message[:1000]}"
