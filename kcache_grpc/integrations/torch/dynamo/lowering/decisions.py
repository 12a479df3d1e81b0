"""The decision log: for each graph what became kernels, what was left to PyTorch and why, and the time.

Work of nodes is counted in floating-point operations and bytes of memory traffic.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import import_module
from typing import Any, NamedTuple

from kcache_grpc.integrations.torch.dynamo.lowering.plan import RECURRENT

torch: Any = import_module("torch")
#: ``TORCH_LOGS="kcache"`` shows decisions, ``TORCH_LOGS="+kcache"`` each operator that was left out.
log = logging.getLogger("kcache")
#: Names of nodes in a line of the log.
_NAMES = 4
#: Decisions of this process that are kept.
_MOST = 1000
_DECISIONS: deque[Decision] = deque(maxlen=_MOST)


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


class LeftOut(NamedTuple):
    """An operator that PyTorch runs, and why. ``node`` is its name in the graph, such as ``exp_1``."""

    operator: str
    reason: str
    node: str = ""


@dataclass
class Decision:
    """What became of one graph."""

    #: "inference", "forward" or "backward".
    kind: str
    #: Nodes of each kernel.
    kernels: list[int]
    left_out: list[LeftOut]
    inside: Cost = field(default_factory=Cost)
    outside: Cost = field(default_factory=Cost)
    #: Stage -> time.
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    #: "compiled": traced and compiled in this process. "warm": from a record of its source graph.
    #: "eager": left to PyTorch.
    origin: str = "compiled"
    #: Inputs of kernels that are bound: prepared once, not read at each call.
    bound: int = 0

    @property
    def share(self) -> float:
        """Share of floating-point operations in kernels, 0 to 1."""
        total = self.inside.operations + self.outside.operations
        return self.inside.operations / total if total else 1.0

    @property
    def traffic_share(self) -> float:
        """Share of memory traffic in kernels, 0 to 1."""
        total = self.inside.bytes + self.outside.bytes
        return self.inside.bytes / total if total else 1.0

    def to_json(self) -> dict[str, Any]:
        """As JSON values, with the time in UTC, for ``kcache explain --torch``."""
        return {
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "kind": self.kind,
            "origin": self.origin,
            "kernels": self.kernels,
            "bound": self.bound,
            "left_out": [list(row) for row in self._rows()],
            "operations_share": round(self.share, 4),
            "traffic_share": round(self.traffic_share, 4),
            "seconds": {stage: round(seconds, 4) for stage, seconds in self.seconds.items()},
        }

    def __str__(self) -> str:
        stages = ", ".join(f"{stage} {seconds * 1e3:.0f} ms" for stage, seconds in self.seconds.items())
        if self.origin == "warm":
            kernels = f"{len(self.kernels)} kernels{self._bound()}"
            return f"{self.kind}: {kernels} from the record of the source graph ({stages})"
        text = (
            f"{self.kind}: {len(self.kernels)} kernels{self._bound()} ({sum(self.kernels)} nodes), "
            f"{len(self.left_out)} operators left to PyTorch; {self.share:.1%} of operations and "
            f"{self.traffic_share:.1%} of memory traffic in kernels ({stages})"
        )
        lines = [f"  {count} x {name}: {reason}" for name, reason, count in self._rows()]
        return "\n".join([text, *lines])

    def _bound(self) -> str:
        return f" with {self.bound} bound inputs" if self.bound else ""

    def _rows(self) -> list[tuple[str, str, int]]:
        """Operators that PyTorch runs, why and which nodes they are, and how many."""
        nodes: dict[tuple[str, str], list[str]] = {}
        for each in self.left_out:
            nodes.setdefault((each.operator, each.reason), []).append(each.node)
        return [(name, reason + _described(each), len(each)) for (name, reason), each in nodes.items()]


def _described(nodes: list[str]) -> str:
    names = ", ".join(filter(None, nodes[:_NAMES]))
    return f" ({names}{', ...' if len(nodes) > _NAMES else ''})" if names else ""


def record(decision: Decision) -> None:
    """Add a decision to those of this process, and to the log."""
    _DECISIONS.append(decision)
    log.info("%s", decision)


def decisions() -> list[Decision]:
    """What became of the graphs that the backend compiled in this process: the last 1,000, oldest first."""
    return list(_DECISIONS)


def forget() -> None:
    """Empty the list of decisions."""
    _DECISIONS.clear()
