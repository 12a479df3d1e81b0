"""Parts of an ATen graph as programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kcache_grpc.errors import ArgumentError, UnsupportedOp
from kcache_grpc.programs.torch.graph_text.support import device_of, unsupported_reason
from kcache_grpc.programs.torch.graph_text.writer import FunctionWriter
from kcache_grpc.programs.torch.negative_indices import count_from_the_end, count_truths

__all__ = ["Island", "device_of", "line_owners", "prepare_graph", "unsupported_reason", "write_program"]

torch: Any = import_module("torch")

Node = Any
Order = Sequence[int] | None
Sample = Mapping[str, int]


@dataclass(frozen=True)
class Island:
    """Nodes of one graph such that no path between two of them leaves it.

    ``nodes``: calls, in topological order. ``inputs``: tensors from outside that they read. ``outputs``:
    tensors of the nodes that are results.
    """

    nodes: Sequence[Node]
    inputs: Sequence[Node]
    outputs: Sequence[Node]


def prepare_graph(graph: Any) -> None:
    """Give a decomposed graph the form in which its nodes can be written, in place."""
    count_from_the_end(graph)
    count_truths(graph)


def write_program(
    island: Island,
    samples: Sequence[Sample] = (),
    *,
    input_orders: Sequence[Order] | None = None,
    output_orders: Sequence[Order] | None = None,
) -> bytes:
    """The text of an island as a TORCH program.

    ``samples``: none where all sizes are static, else two, symbol -> size. ``input_orders`` and
    ``output_orders``: for each tensor the order in which the program has its axes; ``None``: as they are.
    Raises ``UnsupportedOp`` and ``ArgumentError`` for what cannot be written; ``metadata["node"]`` is the
    name of the node.
    """
    functions = _functions(island, samples, input_orders, output_orders)
    axes = _open_axes(island, input_orders, samples) if samples else []
    attributes = f" attributes {{kcache.open_axes = [{', '.join(axes)}]}}" if axes else ""
    return f"module{attributes} {{\n{''.join(text for text, _ in functions)}}}\n".encode()


def line_owners(
    island: Island,
    samples: Sequence[Sample] = (),
    *,
    input_orders: Sequence[Order] | None = None,
    output_orders: Sequence[Order] | None = None,
) -> list[Node | None]:
    """For each line of what ``write_program`` returns, the node whose operations it has; ``None``: of none.

    A constant belongs to the first node that reads it.
    """
    functions = _functions(island, samples, input_orders, output_orders)
    return [None, *(owner for _, owners in functions for owner in owners), None]


def _functions(
    island: Island,
    samples: Sequence[Sample],
    input_orders: Sequence[Order] | None,
    output_orders: Sequence[Order] | None,
) -> list[tuple[str, list[Node | None]]]:
    """The functions of a program, and the owners of their lines."""
    ins = input_orders or [None] * len(island.inputs)
    outs = output_orders or [None] * len(island.outputs)
    return [
        _function(name, island, sample, ins, outs)
        for name, sample in zip(("main", "main_at_other_sizes"), samples or ({},), strict=False)
    ]


def _function(
    name: str, island: Island, sample: Sample, input_orders: Sequence[Order], output_orders: Sequence[Order]
) -> tuple[str, list[Node | None]]:
    writer = FunctionWriter(_Sizes(sample))
    for node, order in zip(island.inputs, input_orders, strict=True):
        writer.parameter(node, order)
    owners: list[Node | None] = [None] * (1 + writer.lines)
    for node in island.nodes:
        try:
            writer.write(node)
        except (UnsupportedOp, ArgumentError) as error:
            error.metadata["node"] = node.name
            raise
        owners += [node] * (1 + writer.lines - len(owners))
    text = writer.text(name, island.outputs, output_orders)
    return text, owners + [None] * (text.count("\n") - len(owners))


class _Sizes:
    """Evaluates sizes at a sample; each expression once."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._known: dict[Any, Any] = {}

    def __call__(self, size: Any) -> Any:
        if isinstance(size, (bool, int, float)):
            return size
        formula = size.node.expr
        if formula not in self._known:
            self._known[formula] = self._evaluate(formula)
        return self._known[formula]

    def _evaluate(self, formula: Any) -> Any:
        sympy: Any = import_module("sympy")
        values = {symbol: sympy.Integer(self._sample[str(symbol)]) for symbol in formula.free_symbols}
        value = formula.xreplace(values)
        if value in (sympy.true, sympy.false):
            return bool(value)
        return int(value) if value.is_Integer else float(value)


def _open_axes(island: Island, orders: Sequence[Order] | None, samples: Sequence[Sample]) -> list[str]:
    """Each axis of an argument whose size differs between samples: ``[argument, axis, "name"]``."""
    axes: list[str] = []
    first, second = map(_Sizes, samples)
    names: dict[str, str] = {}
    ins = orders or [None] * len(island.inputs)
    for position, (node, order) in enumerate(zip(island.inputs, ins, strict=True)):
        shape = node.meta["val"].shape
        for axis, source in enumerate(order or range(len(shape))):
            if first(shape[source]) != second(shape[source]):
                name = names.setdefault(str(shape[source].node.expr), f"axis {axis} of input {position}")
                axes.append(f'[{position}, {axis}, "{name}"]')
    return axes
