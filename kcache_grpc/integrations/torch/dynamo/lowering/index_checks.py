"""Checks of the indices in tensors, as eager mode has them.

A kernel clamps an index that is out of bounds, where PyTorch raises. So ``aten._assert_async`` checks, on the
CPU, the indices that come from outside of the graph, before the kernel that they are for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

torch: Any = import_module("torch")
aten: Any = torch.ops.aten

Node = Any

#: Operators between an input and an index that keep all elements, and those that keep some.
_KEEPING = ("_to_copy", "view", "unsqueeze", "squeeze", "expand", "permute", "alias", "clone", "detach") + (
    "reshape", "transpose", "_unsafe_view", "t"
)  # fmt: skip
_SELECTING = ("slice", "select")
_MESSAGE = "index out of range"


class Indexing(NamedTuple):
    """``index`` selects along axis ``axis`` of ``source``; ``negative``: from the end, too."""

    source: Node
    axis: int
    index: Node
    negative: bool


def check_indices(graph: Any) -> list[Node]:
    """Insert the checks of a graph, in place; returns their nodes, which PyTorch has to run."""
    checked: set[tuple[Any, ...]] = set()
    added: list[Node] = []
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for use in _uses(node):
            root = _input_of(use.index)
            size = use.source.meta["val"].shape[use.axis] if use.source.meta["val"].dim() else 1
            key = (root, str(size), use.negative)
            if root is None or key in checked or root.meta["val"].device.type != "cpu":
                continue
            checked.add(key)
            with graph.inserting_before(node):
                added += _check(graph, use, root, size)
    return added


def _uses(node: Node) -> Iterator[Indexing]:
    name, args = str(node.target._schema.name), node.args
    if name == "aten::embedding":
        yield Indexing(args[0], 0, args[1], False)
    elif name in ("aten::gather", "aten::index_select", "aten::scatter", "aten::scatter_add"):
        yield Indexing(args[0], args[1], args[2], False)
    elif name in ("aten::index", "aten::index_put", "aten::_unsafe_index_put"):
        yield from _advanced(args[0], args[1])


def _advanced(source: Node, indices: Sequence[Any]) -> Iterator[Indexing]:
    axis = 0
    for index in indices:
        if index is not None and index.meta["val"].dtype is not torch.bool:
            yield Indexing(source, axis, index, True)
        axis += 1 if index is None or index.meta["val"].dtype is not torch.bool else index.meta["val"].dim()


def _input_of(index: Node) -> Node | None:
    """The input of the graph, or the part of it, that an index is; ``None`` for one that is computed."""
    part: Node | None = None
    while index.op == "call_function":
        target: Any = index.target
        name = target._schema.name.partition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""
        if name in _SELECTING:
            part = part or index
        elif name not in _KEEPING:
            return None
        index = index.args[0]
    value = index.meta.get("val")
    if index.op != "placeholder" or value is None or value.dtype not in (torch.int64, torch.int32):
        return None
    return part or index


def _check(graph: Any, use: Indexing, index: Node, size: Any) -> list[Node]:
    fake = index.meta["val"]
    added: list[Node] = []

    def call(target: Callable[..., Any], *args: Any, value: Any) -> Node:
        node = graph.call_function(target, args)
        node.meta["val"] = value
        added.append(node)
        return node

    bound: Any = size
    if not isinstance(size, int):
        bound = call(aten.sym_size.int, use.source, use.axis, value=size)
    booleans = fake.new_empty(fake.shape, dtype=torch.bool)
    lowest: Any = 0
    if use.negative:
        lowest = -size if isinstance(size, int) else call(operator.neg, bound, value=-size)
    below = call(aten.lt.Scalar, index, bound, value=booleans)
    above = call(aten.ge.Scalar, index, lowest, value=booleans)
    both = call(aten.logical_and.default, below, above, value=booleans)
    valid = call(aten.all.default, both, value=fake.new_empty((), dtype=torch.bool))
    call(aten._assert_async.msg, valid, _MESSAGE, value=None)
    return [node for node in added if isinstance(node.meta["val"], torch.Tensor)]
