"""Partition of an ATen graph into islands, which become kernels, and nodes that PyTorch runs.

Each node that kernels support gets a level: the number of times that its inputs alternate between kernels and
operators of PyTorch. Nodes of one level form one island, so a graph has as many islands as the longest such
alternation requires. Views belong to no island: consumers inside an island recompute them, consumers outside
get real views of the value that they alias.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

from kcache_grpc.integrations.torch.dynamo.lowering.plan import RECURRENT, is_slice
from kcache_grpc.integrations.torch.dynamo.lowering.updates import UPDATES

torch: Any = import_module("torch")
aten: Any = torch.ops.aten

Node = Any

#: Operators whose result aliases their first argument.
VIEWS = (
    *("alias", "detach", "diagonal", "expand", "permute", "select", "slice", "split", "split_with_sizes"),
    *("squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "view_as_real", "view_as_complex", "chunk"),
    *("broadcast_in_dim", "collapse_view", "conj", "slice_in_dim", "split_dim", "view_of", "view_of_dtype"),
    *("movedim", "unfold", "as_strided", "real", "imag", "_conj", "_neg_view", "lift_fresh"),
)
#: Those of ``prims``, which decompositions call.
PRIMS_VIEWS = (
    *("as_strided", "broadcast_in_dim", "collapse_view", "conj", "slice", "slice_in_dim", "split_dim"),
    *("squeeze", "transpose", "view_of", "view_of_dtype"),
)
#: Supported operators without arithmetic: an island needs others.
_TRIVIAL_NAMES = frozenset(
    {
        *(
            "_unsafe_view",
            "clone",
            "_to_copy",
            "full",
            "full_like",
            "zeros",
            "zeros_like",
            "ones",
            "ones_like",
        ),
        *("empty", "empty_like", "empty_strided", "scalar_tensor", "arange", "lift_fresh_copy", "copy"),
        *("new_zeros", "new_full", "new_empty", "new_ones", "reshape", "constant_pad_nd", "cat", "stack"),
    }
)
#: An island with fewer operators that compute has no benefit: there is nothing to fuse.
LEAST_OPERATORS = 2


#: Level and device.
_Group = tuple[int, str]


@dataclass
class Island:
    """Nodes that become one kernel. ``nodes`` are in topological order and include the views inside."""

    nodes: list[Node] = field(default_factory=list[Node])
    inputs: list[Node] = field(default_factory=list[Node])
    outputs: list[Node] = field(default_factory=list[Node])


@dataclass
class Partition:
    """``steps``: nodes that PyTorch runs, and islands, in order of execution."""

    steps: list[Node | Island]
    #: Why nodes are in no island.
    reasons: dict[Node, str]

    @property
    def islands(self) -> list[Island]:
        return [step for step in self.steps if isinstance(step, Island)]


def overload_name(node: Node) -> str:
    """Such as ``aten.add.Tensor``; the name of a function for other targets."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", str(target))


def packet_name(node: Node) -> str:
    """Such as ``add`` of ``aten.add.Tensor``; also of views of ``prims``; else empty."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return ""
    name = str(target._schema.name).partition("::")[2]
    return name if target.namespace == "aten" or (target.namespace == "prims" and name in PRIMS_VIEWS) else ""


def tensors_in(value: Any) -> Iterator[Node]:
    """The nodes in an argument, nested as it is."""
    if isinstance(value, torch.fx.Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:  # pyright: ignore[reportUnknownVariableType]
            yield from tensors_in(element)
    elif isinstance(value, dict):
        for element in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from tensors_in(element)
    elif is_slice(value):
        yield from tensors_in([value.start, value.stop, value.step])


def operands(node: Node) -> list[Node]:
    """The nodes that ``node`` reads, repeated ones once."""
    return list(dict.fromkeys([*tensors_in(node.args), *tensors_in(node.kwargs)]))


def is_view(node: Node) -> bool:
    """Whether the result of a node aliases its first argument, or is one of several that do."""
    if node.target is operator.getitem:
        return is_view(node.args[0])
    return packet_name(node) in VIEWS


def is_tensor(node: Node) -> bool:
    """Whether the value of a node is a tensor."""
    return isinstance(node.meta.get("val"), torch.Tensor)


class Partitioner:
    """Partitions one graph.

    ``unsupported(node)`` returns why a kernel cannot compute a node, or ``None``. ``least_operators``: as in
    ``Settings``.
    """

    def __init__(
        self,
        graph: Any,
        unsupported: Callable[[Node], str | None],
        least_operators: int = LEAST_OPERATORS,
    ) -> None:
        self._graph = graph
        self._least_operators = least_operators
        self._unsupported = unsupported
        self._nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        self._rank = {node: index for index, node in enumerate(graph.nodes)}
        self._output = next(node for node in reversed(graph.nodes) if node.op == "output")
        self._views: set[Node] = set()
        self._supported: set[Node] = set()
        self._roots: dict[Node, Node] = {}
        self._levels: dict[Node, int] = {}
        self.reasons: dict[Node, str] = {}

    def partition(self) -> Partition:
        """The islands with a benefit, and everything else as nodes that PyTorch runs."""
        self._classify()
        while True:
            self._assign_levels()
            islands = self._islands()
            useless = [island for island in islands.values() if not self._has_benefit(island)]
            if not useless:
                return Partition(self._steps(islands), self.reasons)
            for island in useless:
                for node in island.nodes:
                    if node in self._supported:
                        self._leave_out(node, "no benefit: too few operators that compute")

    def _leave_out(self, node: Node, reason: str) -> None:
        self._supported.discard(node)
        self.reasons.setdefault(node, reason)

    def _classify(self) -> None:
        for node in self._nodes:
            if node.target is operator.getitem and node.args[0] in self._views:
                self._views.add(node)
            elif node.target is operator.getitem and node.args[0] in self._supported:
                self._supported.add(node)
            elif node.op == "call_function" and node.target is not operator.getitem:
                self._classify_call(node)

    def _classify_call(self, node: Node) -> None:
        values = node.meta.get("val")
        if not _has_tensors(values):
            return  # a size or a scalar: Python computes it
        reason = self._unsupported(node)
        if reason is not None:
            self.reasons[node] = reason
        elif packet_name(node) in VIEWS:
            self._views.add(node)
        else:
            self._supported.add(node)

    def _root(self, node: Node) -> Node:
        """The value that a view aliases; of other nodes the node itself."""
        while node in self._views:
            node = node.args[0]
        return node

    def _values_of(self, node: Node) -> Iterator[Node]:
        """The values that a node reads: for a view what it aliases, and the sizes that it is made with."""
        for operand in operands(node):
            value = operand
            while value in self._views:
                yield from (each for each in operands(value) if each is not value.args[0])
                value = value.args[0]
            yield value

    def _assign_levels(self) -> None:
        """The level of an island, or for other nodes that of the island before which they run."""
        levels = self._levels = {}
        impure = 0
        for node in self._nodes:
            if node in self._views:
                continue
            level = 0
            for value in self._values_of(node):
                before = levels.get(value, 0)
                level = max(level, before + (value in self._supported and node not in self._supported))
            if node not in self._supported and _is_impure(node):
                level = impure = max(level, impure)
            levels[node] = level
        updates = [node for node in self._nodes if node.target in UPDATES]
        last = max(levels.values(), default=0) + 1
        for node in updates:
            levels[node] = last

    def _islands(self) -> dict[_Group, Island]:
        members: dict[_Group, list[Node]] = {}
        for node in self._nodes:
            if node in self._supported:
                members.setdefault((self._levels[node], _device(node)), []).append(node)
        return {group: self._island(nodes) for group, nodes in members.items()}

    def _island(self, members: list[Node]) -> Island:
        inside = set(members)
        views: set[Node] = set()
        inputs: dict[Node, None] = {}
        for node in members:
            for operand in operands(node):
                root = operand
                while root in self._views:
                    views.add(root)
                    root = root.args[0]
                if root not in inside and _has_tensors(root.meta.get("val")):
                    inputs[root] = None
        nodes = sorted({*members, *views}, key=self._rank.__getitem__)
        outputs = [node for node in members if is_tensor(node) and self._escapes(node, inside)]
        return Island(nodes, list(inputs), outputs)

    def _escapes(self, node: Node, inside: set[Node]) -> bool:
        """Whether a node outside the island reads a value, itself or through views."""
        for user in node.users:
            if user in self._views:
                if self._escapes(user, inside):
                    return True
            elif user not in inside:
                return True
        return False

    def _has_benefit(self, island: Island) -> bool:
        """Whether the island has results and enough operators that compute; a recurrent layer is enough."""
        computing = sum(
            self._least_operators if _is_recurrent(node) else 1
            for node in island.nodes
            if node in self._supported
            and node.target is not operator.getitem
            and packet_name(node) not in _TRIVIAL_NAMES
        )
        return computing >= self._least_operators and bool(island.outputs)

    def _steps(self, islands: dict[_Group, Island]) -> list[Node | Island]:
        by_level: dict[int, list[Node]] = {}
        for node in self._nodes:
            if node not in self._supported and node not in self._views:
                by_level.setdefault(self._levels[node], []).append(node)
        needed = set[Node]()
        self._need_views(operands(self._output), needed)
        for nodes in by_level.values():
            for node in nodes:
                self._need_views(operands(node), needed)
        for node in needed:
            root = self._root(node)
            level = self._levels.get(root, 0) + (root in self._supported)
            scalars = [self._levels.get(operand, 0) for operand in operands(node) if operand not in needed]
            by_level.setdefault(max([level, *scalars]), []).append(node)
        steps: list[Node | Island] = []
        at_level: dict[int, list[Island]] = {}
        for (level, _), island in islands.items():
            at_level.setdefault(level, []).append(island)
        for level in range(max([*by_level, *at_level], default=-1) + 1):
            steps += sorted(by_level.get(level, ()), key=self._rank.__getitem__)
            steps += at_level.get(level, ())
        return steps

    def _need_views(self, values: Sequence[Node], needed: set[Node]) -> None:
        for value in values:
            while value in self._views and value not in needed:
                needed.add(value)
                value = value.args[0]


def _device(node: Node) -> str:
    """The device of a node that kernels support: all of its tensors are on one."""
    from kcache_grpc.programs.torch.graph_text.program import device_of  # a warm start does not need it

    value = node.meta.get("val")
    values = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else [value]
    return next(str(device_of(each)) for each in values if isinstance(each, torch.Tensor))


def _has_tensors(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(isinstance(element, torch.Tensor) for element in value)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(value, torch.Tensor)


def _is_recurrent(node: Node) -> bool:
    """Whether a node is a layer of many steps, each of several operators."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target.namespace == RECURRENT


def _is_impure(node: Node) -> bool:
    """Whether the order of a node among others of its kind is observable: random operators and effects."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return node.op == "call_function" and getattr(target, "__module__", "") != "_operator"
    return torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable
