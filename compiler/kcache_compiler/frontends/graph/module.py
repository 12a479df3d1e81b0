"""Reads a graph program as a verified native module."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.lower import dynamic_dims, lower_graph
from kcache_compiler.frontends.graph.program import GraphProgram
from kcache_compiler.frontends.graph.values import SamplingUnsupported
from kcache_compiler.frontends.imported import Imported
from kcache_compiler.frontends.limits import Limits
from kcache_compiler.mlir import context as mlir

if TYPE_CHECKING:
    from torch_mlir.ir import MLIRError

    from kcache_compiler.mlir.types import Module

_NAME = re.compile(r'loc\("((?:[^"\\]|\\.)*)"')


def read_graph(program: bytes | GraphProgram, limits: Limits) -> Module | Imported:
    """Return the StableHLO module of a graph; with dynamic dimensions one at sample sizes, and the others.

    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``, naming the node.
    """
    if isinstance(program, bytes):
        raise InvalidProgram(
            "the compiler takes a graph as a GraphProgram: decode the message kcache.v1.Graph first "
            "(kcache_grpc.worker does)"
        )
    dims = dynamic_dims(program)
    if not dims:
        return _parse(lower_graph(program, limits))
    # Lowered with dynamic dimensions first, which reports every error of the graph.
    dynamic = lower_graph(program, limits)
    symbols = list(dict.fromkeys(dims.values()))
    samples = [dict(zip(symbols, _sample_sizes(program, number), strict=False)) for number in range(2)]
    try:
        first, second = (lower_graph(program, limits, sizes) for sizes in samples)
    except SamplingUnsupported:
        return _parse(dynamic)
    return Imported(
        _parse(first), open_axes=dims, others=(lambda: _parse(second),), dynamic=lambda: _parse(dynamic)
    )


def _sample_sizes(program: GraphProgram, sample: int) -> Iterator[int]:
    """Yield sample sizes: distinct, not among the inputs' sizes, with many divisors."""
    static = set(_static_sizes(program))
    return (size for size in itertools.count(48 + 720 * sample, 24) if size not in static)


def _static_sizes(program: GraphProgram) -> Iterable[int]:
    for declared in program.inputs:
        yield from (dim for dim in declared.dims if isinstance(dim, int))
    for constant in program.constants:
        yield from constant.value.dims


def _parse(text: str) -> Module:
    try:
        return mlir.parse_module(text, mlir.new_context())
    except mlir.mlir_error() as error:
        raise InvalidProgram(_describe_error(error)) from None


def _describe_error(error: MLIRError) -> str:
    """Return the verifier's first diagnostic, and the node that it concerns."""
    diagnostics = [(str(d.location), str(d.message).strip()) for d in error.error_diagnostics][:1]
    location, message = diagnostics[0] if diagnostics else ("", str(error))
    name = _NAME.search(location)
    node = f"the node that defines {name[1]!r}" if name else "the graph"
    return f"{node} is not valid StableHLO: {message[:1000]}"
