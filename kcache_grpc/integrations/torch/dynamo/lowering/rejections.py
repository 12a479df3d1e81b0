"""Which nodes of an island are left to PyTorch where the service rejects its program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kcache_grpc.integrations.torch.dynamo.lowering.partition import (
    Island,
    Node,
    is_view,
    overload_name,
    packet_name,
)

_T = TypeVar("_T")

#: Names of operators in messages.
_NAMED = re.compile(r"torch\.((?:aten|prims)\.\w+(?:\.\w+)?)")


class Rejection(NamedTuple):
    """An operator that the service rejects in a program, such as ``aten.nonzero.default``.

    ``operator`` is empty where the whole program is meant. ``lines``: where in the text of the program, from
    1, all rejected uses of it are; empty where some of them are not known.
    """

    operator: str
    reason: str
    lines: tuple[int, ...] = ()


class IslandRejected(Exception):
    """An island of a partition has no kernel.

    ``nodes``: why some of its nodes cannot be in one; empty where it is not known which.
    """

    def __init__(self, island: Island, error: Exception, nodes: Mapping[Node, str] | None = None) -> None:
        super().__init__(str(error))
        self.island = island
        self.error = error
        self.nodes = nodes or {}
        self._reason = f"{type(error).__name__}: {error}"

    @property
    def left_out(self) -> dict[Node, str]:
        """The nodes that PyTorch has to run, and why: at least one that is in the island."""
        if self.nodes:
            return dict(self.nodes)
        named = _named(self.island.nodes, set(_NAMED.findall(str(self.error))))
        return dict.fromkeys(named, self._reason) or self.whole

    @property
    def whole(self) -> dict[Node, str]:
        """All nodes of the island, and why. Its views stay: other islands may recompute them, too."""
        return {node: self._reason for node in self.island.nodes if not is_view(node)}


class PartitionRejected(Exception):
    """Islands of a partition have no kernel."""

    def __init__(self, islands: Sequence[IslandRejected]) -> None:
        super().__init__(str(islands[0]))
        self.islands = islands


def for_each(work: Callable[..., _T], islands: Iterable[Island], *arguments: Iterable[Any]) -> list[_T]:
    """What ``work`` returns for each island. Raises ``PartitionRejected`` with all that it rejects."""
    results: list[_T] = []
    rejected: list[IslandRejected] = []
    for island, *others in zip(islands, *arguments, strict=True):
        try:
            results.append(work(island, *others))
        except IslandRejected as error:  # noqa: PERF203 - each island has its own
            rejected.append(error)
    if rejected:
        raise PartitionRejected(rejected) from rejected[0]
    return results


def rejected_nodes(
    rejections: Iterable[Rejection], island: Island, owners: Sequence[Node | None], *, every_use: bool = False
) -> dict[Node, str]:
    """The nodes of an island that the service rejects, and why.

    ``owners``: the node of each line of the island's program. Where lines of a rejection are not known, all
    uses of its operator are meant. ``every_use``: also where they are.
    """
    reasons: dict[Node, str] = {}
    for rejection in rejections:
        nodes = list(_located(rejection.lines, owners)) or _named(island.nodes, {rejection.operator})
        if every_use:
            nodes = _named(island.nodes, set(map(overload_name, nodes)))
        for node in nodes:
            reasons.setdefault(node, f"UnsupportedOp: {rejection.reason}")
    return reasons


def _located(lines: Sequence[int], owners: Sequence[Node | None]) -> Iterator[Node]:
    for line in lines:
        owner = owners[line - 1] if 0 < line <= len(owners) else None
        if owner is not None:
            yield owner


def _named(nodes: Sequence[Node], names: set[str]) -> list[Node]:
    return [node for node in nodes if overload_name(node) in names or f"aten.{packet_name(node)}" in names]
