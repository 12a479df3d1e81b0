"""A graph program to a verified native module."""

from __future__ import annotations

import re

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends import context as mlir
from kcache_compiler.frontends.context import Native
from kcache_compiler.frontends.graph.lower import lower_graph
from kcache_compiler.frontends.graph.program import GraphProgram
from kcache_compiler.frontends.limits import Limits

_NAME = re.compile(r'loc\("((?:[^"\\]|\\.)*)"')


def read_graph(program: bytes | GraphProgram, limits: Limits) -> Native:
    """Return the StableHLO module of a graph.

    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``, naming the node.
    """
    if isinstance(program, bytes):
        raise InvalidProgram(
            "the compiler takes a graph as a GraphProgram: decode the message kcache.v1.Graph first "
            "(kcache_grpc.worker does)"
        )
    text = lower_graph(program, limits)
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
