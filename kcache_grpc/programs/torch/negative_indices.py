"""Negative indices: PyTorch counts them from the end; in StableHLO an index out of range is the nearest.

``x[i]`` becomes ``x[where(i < 0, i + size, i)]``, unless ``i`` cannot be negative. On an open axis the size
is then a number of the program. Truth values among an operation's numbers are numbers, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Operations that give no negative numbers.
_COUNTING = frozenset({"abs", "argmax", "argmin", "argsort"})
#: Those whose second result gives none.
_CHOOSING = frozenset({"sort", "topk", "max", "min"})
#: Operations that give elements of their first operand, or of a list of them.
_MOVING = frozenset(
    {
        *("_to_copy", "_unsafe_view", "alias", "cat", "clone", "expand", "flip", "gather", "index_select"),
        *("lift_fresh_copy", "permute", "repeat", "reshape", "select", "slice", "squeeze", "stack", "t"),
        *("transpose", "unsqueeze", "view"),
    }
)
#: Operations that give no negative numbers where their operands are none.
_JOINING = frozenset({"add", "bitwise_and", "floor_divide", "maximum", "minimum", "mul", "remainder"})
_FILLING = frozenset({"full", "full_like", "ones", "ones_like", "zeros", "zeros_like"})
_DEPTH = 32


def count_from_the_end(graph: Any) -> None:
    """Rewrite, in place, the indices of a decomposed graph that may be negative."""
    aten: Any = import_module("torch").ops.aten
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in (aten.index.Tensor, aten.index_put.default):
            _rewrite(graph, node, aten)


def count_truths(graph: Any) -> None:
    """Write ``True`` as 1, in place, where an operation takes a number: torch-mlir has none that are truth
    values. What the operation gives was decided before.
    """
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None:
            continue
        kinds = {argument.name: str(argument.type) for argument in schema.arguments}
        node.args = tuple(
            _number(value, kind) for value, kind in zip(node.args, kinds.values(), strict=False)
        )
        node.kwargs = {name: _number(value, kinds[name]) for name, value in node.kwargs.items()}


def _number(value: Any, kind: str) -> Any:
    return int(value) if isinstance(value, bool) and "bool" not in kind else value


def _rewrite(graph: Any, node: Any, aten: Any) -> None:
    torch: Any = import_module("torch")
    source, indices = node.args[0], list(node.args[1])
    kinds = [None if i is None else i.meta["val"].dtype for i in indices]
    if torch.bool in kinds or torch.uint8 in kinds:
        return  # masks
    with graph.inserting_before(node):
        wrapped = [
            index
            if index is None or _not_negative(index, _DEPTH)
            else _wrapped(graph, source, axis, index, aten)
            for axis, index in enumerate(indices)
        ]
    node.args = (source, wrapped, *node.args[2:])


def _wrapped(graph: Any, source: Any, axis: int, index: Any, aten: Any) -> Any:
    size = source.meta["val"].shape[axis]
    number: Any = size
    if not isinstance(size, int):
        number = graph.call_function(aten.sym_size.int, (source, axis))
        number.meta["val"] = size
    value = index.meta["val"]
    negative = graph.call_function(aten.lt.Scalar, (index, 0))
    negative.meta["val"] = value < 0
    moved = graph.call_function(aten.add.Tensor, (index, number))
    moved.meta["val"] = value + size
    wrapped = graph.call_function(aten.where.self, (negative, moved, index))
    wrapped.meta["val"] = value + size
    return wrapped


def _not_negative(value: Any, depth: int) -> bool:
    """Whether the elements of a node, or a number, are known not to be below zero."""
    if isinstance(value, (int, float)):
        return value >= 0
    if not depth or getattr(value, "op", None) != "call_function":
        return False
    name = str(getattr(value.target, "_schema", None) and value.target.overloadpacket.__name__)
    args = value.args
    if name in _COUNTING:
        return True
    if name == "arange":
        return _rises(value)
    if value.target is import_module("operator").getitem:
        producer = str(getattr(args[0].target, "__name__", "")).partition(".")[0]
        return args[1] == 1 and producer in _CHOOSING
    if name in _FILLING:
        return _not_negative(args[1], depth - 1) if name.startswith("full") else True
    if name in ("clamp", "clamp_min"):
        return len(args) > 1 and args[1] is not None and _not_negative(args[1], depth - 1)
    if name in _MOVING:
        parts = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
    elif name in _JOINING and not value.kwargs:
        parts = args[:2]
    elif name == "where":
        parts = args[1:]
    else:
        return False
    return all(_not_negative(part, depth - 1) for part in parts)


def _rises(node: Any) -> bool:
    """Whether an ``arange`` begins at 0 or above and goes up."""
    overload = str(node.target).rpartition(".")[2]
    start = 0 if overload == "default" else node.args[0]
    step = node.args[2] if len(node.args) > 2 else 1
    return all(isinstance(number, int) for number in (start, step)) and start >= 0 and step > 0
