"""Traces of elementwise nodes, written for operands of other sizes.

The trace of an elementwise function, such as a batch norm by running statistics, has the same operators for
all sizes. Each of its tensors has the sizes of an operand, or those of an operand of channels as
``[1, C, 1, 1]``, or none. Its strides depend on which sizes are 1, and on whether operands are row-major or
channels-last: where these are equal for two nodes, so are their traces but for the sizes. Tensors are on the
CPU: the backends of a GPU are chosen by size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, cast

from kcache_grpc.integrations.torch.dynamo.aot.fake_tensors import new_empty
from kcache_grpc.integrations.torch.dynamo.aot.node_traces import (
    NodeTrace,
    NotRepeatable,
    Operand,
    Result,
    Template,
)

operators: Any = import_module("operator")
torch: Any = import_module("torch")
functional: Any = torch.nn.functional

#: Functions of which each element is computed from those at the same index, of its channel with parameters.
ELEMENTWISE: frozenset[Any] = frozenset(
    {
        *(functional.batch_norm, torch.batch_norm),
        *(functional.relu, functional.relu6, functional.leaky_relu, functional.elu, functional.hardtanh),
        *(functional.silu, functional.mish, functional.hardswish, functional.hardsigmoid, functional.gelu),
        *(functional.sigmoid, functional.tanh, functional.softplus),
        *(torch.relu, torch.sigmoid, torch.tanh, torch.add, torch.sub, torch.mul, torch.div),
        *(operators.add, operators.sub, operators.mul, operators.truediv),
        *("relu", "sigmoid", "tanh", "add", "sub", "mul", "div"),
    }
)

_CONTAINERS = (tuple, list, dict, slice)

Sizes = tuple[int, ...]
#: The sizes of a tensor in a trace, of those of the operands.
_Rule = Callable[[Sequence[Sizes]], Sizes]


def layout_name(size: Sequence[int], stride: Sequence[int]) -> str | None:
    """The memory format, "contiguous" or "channels_last", in which a new tensor has these strides."""
    return next((name for name, strides in _STRIDES.items() if strides(size) == tuple(stride)), None)


def described_elementwise(value: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """What the trace of an elementwise node depends on, of an operand: all but its sizes.

    ``operands``: those before it. Raises ``NotRepeatable`` for one whose sizes may matter.
    """
    size = tuple(value.shape)
    layout = layout_name(size, value.stride())
    if layout is None or 0 in size or value.storage_offset() or value.fake_device.type != "cpu":
        raise NotRepeatable
    same_sizes = [tuple(each.shape) == size for each in operands]
    return "sized", layout, *(each == 1 for each in size), *same_sizes


@dataclass(frozen=True)
class ResizableTrace:
    """The trace of an elementwise node, and how its sizes follow from those of the operands."""

    trace: NodeTrace
    #: For each node that the trace adds.
    rules: Sequence[_Rule]
    layouts: Sequence[str]

    def resized(self, operands: Sequence[Any]) -> NodeTrace:
        """The trace for other operands of which ``described_elementwise`` says the same."""
        sizes = [tuple(each.shape) for each in operands]
        mode = operands[0].fake_mode
        values: list[Any] = []
        added: list[Template] = []
        for template, rule, layout in zip(self.trace.added, self.rules, self.layouts, strict=True):
            own, old = rule(sizes), template.meta["val"]
            value = new_empty(mode, own, _STRIDES[layout](own), old.dtype, old.fake_device)
            values.append(value)
            added.append(_resized(template, tuple(old.shape), value))
        leaves = [
            leaf
            if isinstance(leaf, Operand)
            else replace(leaf, size=values[leaf.node].shape, stride=values[leaf.node].stride())
            for leaf in self.trace.leaves
        ]
        return NodeTrace(added, leaves, self.trace.structure)


def resizable(trace: NodeTrace, operands: Sequence[Any]) -> ResizableTrace | None:
    """The trace of an elementwise node, if it has no sizes but those that ``ResizableTrace`` knows."""
    sizes = [tuple(each.shape) for each in operands]
    rules: list[_Rule] = []
    layouts: list[str] = []
    for template in trace.added:
        value: Any = template.meta.get("val")
        if not isinstance(value, torch.Tensor) or not _has_own_sizes(template, tuple(value.shape)):
            return None
        rule, layout = _rule(tuple(value.shape), sizes), layout_name(value.shape, value.stride())
        if rule is None or layout is None or value.storage_offset():
            return None
        rules.append(rule)
        layouts.append(layout)
    for leaf in trace.leaves:
        if isinstance(leaf, Result) and not _is_like(leaf, trace.added[leaf.node].meta["val"]):
            return None
    return ResizableTrace(trace, rules, layouts)


def _rule(size: Sizes, operands: Sequence[Sizes]) -> _Rule | None:
    """How a tensor of a trace gets its sizes."""
    if size in operands:
        position = operands.index(size)
        return lambda sizes: sizes[position]
    if size in ((), (0,)):
        return lambda _: size
    for position, each in enumerate(operands):
        if len(each) == 1 < len(size) and size == _as_channels(each, len(size)):
            return lambda sizes: _as_channels(sizes[position], len(size))
    return None


def _as_channels(size: Sizes, rank: int) -> Sizes:
    return (1, *size, *(1,) * (rank - 2))


def _is_like(leaf: Result, value: Any) -> bool:
    is_same = (tuple(leaf.size), tuple(leaf.stride)) == (tuple(value.shape), value.stride())
    return is_same and leaf.base is None and not leaf.offset


def _has_own_sizes(template: Template, size: Sizes) -> bool:
    """Whether all lists of numbers among the arguments are the sizes of the result."""
    for value in (*template.args, *template.kwargs.values()):
        if _is_sizes(value):
            if tuple(value) != size:
                return False
        elif isinstance(value, (tuple, list)):
            if any(isinstance(each, _CONTAINERS) for each in cast("Sequence[Any]", value)):
                return False
        elif isinstance(value, _CONTAINERS):
            return False
    return True


def _is_sizes(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(
        type(each) is int for each in cast("Sequence[Any]", value)
    )


def _resized(template: Template, old: Sizes, value: Any) -> Template:
    """A template whose result is ``value``."""
    own = tuple(value.shape)

    def resize(argument: Any) -> Any:
        return type(argument)(own) if _is_sizes(argument) and tuple(argument) == old else argument

    args = tuple(map(resize, template.args))
    kwargs = {name: resize(argument) for name, argument in template.kwargs.items()}
    meta = {**template.meta, "val": value}
    if "tensor_meta" in meta:
        meta["tensor_meta"] = meta["tensor_meta"]._replace(shape=value.shape, stride=value.stride())
    return Template(template.target, template.name, args, kwargs, meta)


def _contiguous(size: Sequence[int]) -> Sizes:
    return tuple(math.prod(size[axis + 1 :]) for axis in range(len(size)))


def _channels_last(size: Sequence[int]) -> Sizes | None:
    if len(size) not in (4, 5):
        return None
    moved = _contiguous((size[0], *size[2:], size[1]))
    return (moved[0], moved[-1], *moved[1:-1])


_STRIDES: dict[str, Callable[[Sequence[int]], Sizes]] = {
    "contiguous": _contiguous,
    "channels_last": cast("Any", _channels_last),
}
