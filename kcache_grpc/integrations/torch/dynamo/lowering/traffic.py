"""Work of the nodes of a graph: floating-point operations and bytes of memory traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.lowering.plan import RECURRENT

torch: Any = import_module("torch")


@dataclass
class Cost:
    """``operations``: of matrix products and convolutions, a multiply-add counts as two, plus one for each
    element that another operator computes. ``bytes``: read and written if each node ran alone.
    """

    operations: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.operations + other.operations, self.bytes + other.bytes)


def cost_of(node: Any, *, computed: bool) -> Cost:
    """The work of a node; none for a view. Symbolic sizes count with their hints."""
    if node.op != "call_function" or not computed:
        return Cost()
    results = _tensors(node.meta.get("val"))
    if not results or getattr(node.target, "__module__", "") == "_operator":
        return Cost()
    operands = [tensor for each in node.all_input_nodes for tensor in _tensors(each.meta.get("val"))]
    if node.target is torch.ops.aten.index_put_.default:  # which writes as many elements as it takes
        results, operands = [node.args[2].meta["val"]], operands[1:]
    moved = sum(_elements(tensor) * tensor.dtype.itemsize for tensor in (*results, *operands))
    return Cost(_operations(node, results), moved)


def _operations(node: Any, results: list[Any]) -> float:
    if getattr(node.target, "namespace", "") == RECURRENT:
        is_grouped = node.target._schema.name.startswith(f"{RECURRENT}::grouped_")
        return _grouped_operations(node) if is_grouped else _recurrent_operations(node)
    counter: Any = import_module("torch.utils.flop_counter")
    formula = counter.flop_registry.get(getattr(node.target, "overloadpacket", None))
    if formula is not None:
        values = torch.fx.node.map_arg((node.args, dict(node.kwargs)), _value)
        try:
            return float(_hint(formula(*values[0], **values[1], out_val=node.meta["val"])))
        except Exception:  # noqa: BLE001 - a formula that does not take these arguments
            return float(sum(map(_elements, results)))
    return float(sum(map(_elements, results)))


def _grouped_operations(node: Any) -> float:
    """Those of products of groups of rows: each row with one matrix."""
    matrices = node.meta["val"] if node.meta["val"].dim() == 3 else node.args[1].meta["val"]
    rows, height, width = node.args[0].meta["val"].shape[0], *matrices.shape[1:]
    return 2.0 * _hint(rows) * _hint(height) * _hint(width)


def _recurrent_operations(node: Any) -> float:
    """Those of the products of a recurrent layer: each of its weights with a row of each step."""
    names = [parameter.name for parameter in node.target._schema.arguments]
    weights = [value for name, value in zip(names, node.args, strict=True) if name.startswith("w_") and value]
    steps, batch, _ = map(_hint, node.args[0].meta["val"].shape)
    return 2.0 * steps * batch * sum(_elements(weight.meta["val"]) for weight in weights)


def _value(node: Any) -> Any:
    return node.meta["val"]


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for tensor in value if isinstance(tensor, torch.Tensor)]  # pyright: ignore[reportUnknownVariableType]
    return []


def _elements(tensor: Any) -> int:
    return math.prod(map(_hint, tensor.shape))


def _hint(size: Any) -> int:
    if isinstance(size, (int, float)):
        return int(size)
    hint = getattr(size.node, "hint", None)
    return 1 if hint is None else int(hint)
