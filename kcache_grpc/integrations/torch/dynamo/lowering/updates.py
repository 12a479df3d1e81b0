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
        updated = copy.args[0]
        with graph.inserting_before(copy):
            for put in puts:
                updated = graph.call_function(aten.index_put_.default, (copy.args[0], *put.args[1:]))
                updated.meta["val"] = copy.args[0].meta["val"]
        copy.replace_all_uses_with(updated)  # the graph may return the updated input
        graph.erase_node(copy)
        for put in reversed(puts):
            if not put.users:
                graph.erase_node(put)


def select_single_elements(graph: Any) -> None:
    """Write ``aten.index_put`` of one index to an input as a selection, where its result is read.

    A selection is computed where the new cache is read, which is not copied then.
    """
    for node in list(graph.nodes):
        position = _single_index(node) if node.target is aten.index_put.default else None
        if position is not None:
            with graph.inserting_before(node):
                node.replace_all_uses_with(_selected(graph, node, position))
            graph.erase_node(node)


def _single_index(put: Node) -> int | None:
    """The axis of the only index, which selects one element; None for other puts, and of other tensors."""
    source, indices, values = put.args[:3]
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if put.kwargs or len(put.args) > 3 or len(axes) != 1 or _root(source).op != "placeholder":
        return None
    index, cache = indices[axes[0]].meta["val"], source.meta["val"]
    if index.dtype is not torch.int64 or tuple(index.shape) != (1,) or index.device != cache.device:
        return None
    is_static = all(isinstance(size, int) for size in (*cache.shape, *values.meta["val"].shape))
    return axes[0] if is_static and values.meta["val"].dim() <= cache.dim() else None


def _selected(graph: Any, put: Node, axis: int) -> Node:
    """The new elements at the index, which counts from the end if it is negative, the old ones elsewhere."""
    source, index, values = put.args[0], put.args[1][axis], put.args[2]
    cache = source.meta["val"]
    length = cache.shape[axis]

    def call(target: Any, *args: Any, **kwargs: Any) -> Node:
        node = graph.call_function(target, args, kwargs)
        operands = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in args]
        with cache.fake_mode:
            node.meta["val"] = target(*operands, **kwargs)
        return node

    from_end = call(aten.add.Tensor, index, length)
    wrapped = call(aten.where.self, call(aten.lt.Scalar, index, 0), from_end, index)
    places = call(aten.arange.start_step, 0, length, 1, dtype=torch.int64, device=cache.device)
    is_new = call(aten.eq.Tensor, places, wrapped)
    shaped = call(aten.view.default, is_new, [length, *[1] * (cache.dim() - axis - 1)])
    return call(aten.where.self, shaped, values, source)


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
