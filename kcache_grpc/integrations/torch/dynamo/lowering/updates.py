"""Updates of a graph's inputs, which AOTAutograd leaves at the end of the graph as ``aten.copy_``."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
aten: Any = torch.ops.aten

Node = Any

#: The operators that write to inputs of a graph.
UPDATES = (aten.copy_.default, aten.index_put_.default)


def write_elements_in_place(graph: Any) -> None:
    """Write to an input only the elements that ``aten.index_put`` changes, in place.

    A static cache of keys and values would else be an output of a kernel, and be copied as a whole at each
    step. Kernels may still read the new cache, and compute it for themselves.
    """
    written = {node.args[0] for node in graph.nodes if node.target in UPDATES}
    for copy in [node for node in graph.nodes if node.target is aten.copy_.default]:
        puts = _puts(*copy.args[:2])
        if not puts or any(_root(value) in written for put in puts for value in _values(put)):
            continue
        with graph.inserting_before(copy):
            for put in puts:
                node = graph.call_function(aten.index_put_.default, (copy.args[0], *put.args[1:]))
                node.meta["val"] = copy.args[0].meta["val"]
        graph.erase_node(copy)
        for put in reversed(puts):
            if not put.users:
                graph.erase_node(put)


def _puts(target: Node, value: Node) -> list[Node]:
    """The calls, in order, that make ``value`` of ``target``; none where others do, too."""
    puts: list[Node] = []
    while value is not target:
        accumulates = value.kwargs or len(value.args) > 3
        if value.target is not aten.index_put.default or accumulates:
            return []
        puts.insert(0, value)
        value = value.args[0]
    return puts


def _values(put: Node) -> Iterator[Node]:
    """The indices and the new elements."""
    yield from (index for index in put.args[1] if index is not None)
    yield put.args[2]


def _root(node: Node) -> Node:
    """What a view is a view of."""
    while node.op == "call_function" and _is_view(node):
        node = node.args[0]
    return node


def _is_view(node: Node) -> bool:
    if node.target is operator.getitem:
        return True
    returns = node.target._schema.returns if isinstance(node.target, torch._ops.OpOverload) else ()
    return any(result.alias_info is not None for result in returns)
