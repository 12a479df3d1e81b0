"""Checks of the indices in tensors, as eager mode has them.

A kernel clamps an index that is out of bounds, where PyTorch raises. So ``aten._assert_async`` checks, on the
CPU, the indices that come from outside of the graph, before the kernel that they are for, and those that
arithmetic makes of such, such as the targets of a loss.
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
#: Arithmetic, whose results may be out of bounds where its operands are not, or the other way round.
_COMPUTING = ("add", "sub", "mul", "neg", "where")
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
            root = _checked(use.index)
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


def _checked(index: Node) -> Node | None:
    """What has the elements of an index before they are moved: an input, a part of one, or arithmetic on one.

    ``None`` for what other operators compute.
    """
    part: Node | None = None
    while index.op == "call_function" and _name(index) not in _COMPUTING:
        if _name(index) in _SELECTING:
            part = part or index
        elif _name(index) not in _KEEPING:
            return None
        index = index.args[0]
    return (part or index) if _is_from_outside(index) else None


def _is_from_outside(value: Any) -> bool:
    """Whether integers of an input are moved, or computed with, to make a value."""
    if not isinstance(value, torch.fx.Node) or not isinstance(value.meta.get("val"), torch.Tensor):
        return False
    if value.meta["val"].dtype not in (torch.int64, torch.int32):
        return False
    if value.op == "call_function" and _name(value) in _COMPUTING:
        operands = value.args[1:] if _name(value) == "where" else value.args
        return any(map(_is_from_outside, operands))
    if value.op == "call_function" and _name(value) in (*_KEEPING, *_SELECTING):
        return _is_from_outside(value.args[0])
    return value.op == "placeholder"


def _name(node: Node) -> str:
    """Such as ``add``; empty for what is no operator."""
    target: Any = node.target
    return target._schema.name.partition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""


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
