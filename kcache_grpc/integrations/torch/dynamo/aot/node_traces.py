"""What the trace of one node of a Dynamo graph adds to a graph, apart from the operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from kcache_grpc.integrations.torch.dynamo.aot.fake_tensors import new_empty, view_of

proxy_tensor: Any = import_module("torch.fx.experimental.proxy_tensor")
pytree: Any = import_module("torch.utils._pytree")


class NotRepeatable(Exception):
    """A node that is traced separately, however often it occurs."""


@dataclass(frozen=True)
class Operand:
    """A tensor among the arguments of a node, by position."""

    index: int


@dataclass(frozen=True)
class Added:
    """A node that the trace adds, by position."""

    index: int


@dataclass(frozen=True)
class Template:
    """A node that the trace adds; nodes in its arguments are ``Operand`` and ``Added``."""

    target: Any
    name: str | None
    args: Any
    kwargs: Any
    meta: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """A tensor that a node returns: a view of an operand, or a separate tensor."""

    node: int
    size: Sequence[int]
    stride: Sequence[int]
    offset: int
    dtype: Any
    device: Any
    #: The operand whose memory it shares.
    base: int | None

    def tensor(self, operands: Sequence[Any]) -> Any:
        """A fake tensor like it."""
        if self.base is not None:
            return view_of(operands[self.base], self.size, self.stride, self.offset)
        return new_empty(operands[0].fake_mode, self.size, self.stride, self.dtype, self.device)


@dataclass(frozen=True)
class NodeTrace:
    """What the trace of a node added, and what the node returned."""

    added: Sequence[Template]
    #: ``Result``, or ``Operand`` for an operand itself.
    leaves: Sequence[Result | Operand]
    structure: Any

    def repeat(self, operands: Sequence[Any], tracer: Any) -> Any:
        """Add the same nodes for other operands, and return the same of them."""
        proxies = [proxy_slot(value, tracer).proxy.node for value in operands]
        nodes: list[Any] = []

        def bound(value: Any) -> Any:
            if isinstance(value, Operand):
                return proxies[value.index]
            return nodes[value.index] if isinstance(value, Added) else value

        for template in self.added:
            args, kwargs = map_arguments(template.args, bound), map_arguments(template.kwargs, bound)
            node = tracer.create_node("call_function", template.target, args, kwargs, template.name)
            node.meta.update(template.meta)
            nodes.append(node)
        with proxy_tensor.disable_proxy_modes_tracing():
            values = [
                operands[leaf.index] if isinstance(leaf, Operand) else leaf.tensor(operands)
                for leaf in self.leaves
            ]
        for leaf, value in zip(self.leaves, values, strict=True):
            if isinstance(leaf, Result):
                slot = proxy_tensor._ProxyTensor(tracer.proxy(nodes[leaf.node]), None)
                proxy_tensor.set_proxy_slot(value, tracer, slot)
        return pytree.tree_unflatten(values, self.structure)


def proxy_slot(value: Any, tracer: Any) -> Any:
    """What the tracer knows of a tensor; ``None`` if that is nothing."""
    return proxy_tensor.get_proxy_slot(value, tracer, None)


def map_arguments(value: Any, function: Callable[[Any], Any]) -> Any:
    """Arguments of a node with ``function`` of what is no container."""
    if isinstance(value, (tuple, list)):
        parts = [map_arguments(each, function) for each in cast("Sequence[Any]", value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, dict):
        return {key: map_arguments(each, function) for key, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, slice):
        bounds = cast("slice[Any, Any, Any]", value)
        return slice(*(map_arguments(each, function) for each in (bounds.start, bounds.stop, bounds.step)))
    return function(value)
