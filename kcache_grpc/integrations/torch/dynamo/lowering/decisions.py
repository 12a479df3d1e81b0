"""The decision log: for each graph what became kernels, what was left to PyTorch and why, and the time."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple

from kcache_grpc.integrations.torch.dynamo.lowering.traffic import Cost

#: ``TORCH_LOGS="kcache"`` shows decisions, ``TORCH_LOGS="+kcache"`` each operator that was left out.
log = logging.getLogger("kcache")

#: Names of nodes in a line of the log.
_NAMES = 4


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


#: Decisions of this process that are kept.
_MOST = 1000
_DECISIONS: deque[Decision] = deque(maxlen=_MOST)


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
