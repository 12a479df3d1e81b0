"""Traces nodes of a Dynamo graph that repeat, such as those of equal layers, once.

The trace of a node is what ``make_fx`` adds to its graph: operators, after all decompositions. A later node
of the same target, whose arguments are equal and whose tensors have the same sizes, strides, dtypes and
aliases, adds the same operators. They are copied, and no operator is dispatched for them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from kcache_grpc.integrations.torch.dynamo.aot.fake_tensors import new_empty, view_of

torch: Any = import_module("torch")
fake_tensor: Any = import_module("torch._subclasses.fake_tensor")
proxy_tensor: Any = import_module("torch.fx.experimental.proxy_tensor")
pytree: Any = import_module("torch.utils._pytree")
symbolic_shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")

#: Namespaces of operators whose schemas tell their effects.
NAMESPACES = ("aten", "prims")
#: Arguments that are compared as they are.
_PLAIN = (bool, int, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class _NotRepeatable(Exception):
    """A node that is traced by itself, however often it occurs."""


@dataclass(frozen=True)
class _Operand:
    """A tensor among the arguments of a node, by position."""

    index: int


@dataclass(frozen=True)
class _Added:
    """A node that the trace adds, by position."""

    index: int


@dataclass(frozen=True)
class _Template:
    """A node that the trace adds; nodes in its arguments are ``_Operand`` and ``_Added``."""

    target: Any
    name: str | None
    args: Any
    kwargs: Any
    meta: dict[str, Any]


@dataclass(frozen=True)
class _Result:
    """A tensor that a node returns: a view of an operand, or a tensor of its own."""

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
class _NodeTrace:
    """What the trace of a node added, and what the node returned."""

    added: Sequence[_Template]
    #: ``_Result``, or ``_Operand`` for an operand itself.
    leaves: Sequence[_Result | _Operand]
    structure: Any

    def repeat(self, operands: Sequence[Any], tracer: Any) -> Any:
        """Add the same nodes for other operands, and return the same of them."""
        proxies = [_slot(value, tracer).proxy.node for value in operands]
        nodes: list[Any] = []

        def bound(value: Any) -> Any:
            if isinstance(value, _Operand):
                return proxies[value.index]
            return nodes[value.index] if isinstance(value, _Added) else value

        for template in self.added:
            args, kwargs = _map(template.args, bound), _map(template.kwargs, bound)
            node = tracer.create_node("call_function", template.target, args, kwargs, template.name)
            node.meta.update(template.meta)
            nodes.append(node)
        with proxy_tensor.disable_proxy_modes_tracing():
            values = [
                operands[leaf.index] if isinstance(leaf, _Operand) else leaf.tensor(operands)
                for leaf in self.leaves
            ]
        for leaf, value in zip(self.leaves, values, strict=True):
            if isinstance(leaf, _Result):
                slot = proxy_tensor._ProxyTensor(tracer.proxy(nodes[leaf.node]), None)
                proxy_tensor.set_proxy_slot(value, tracer, slot)
        return pytree.tree_unflatten(values, self.structure)


class RepeatingInterpreter(symbolic_shapes.PropagateUnbackedSymInts):
    """Runs a graph of static shapes under ``make_fx``; none of its operators may write a tensor."""

    def __init__(self, graph_module: Any) -> None:
        parent: Any = super()
        parent.__init__(graph_module)
        #: Node without its operands' identities -> its trace, ``None`` where that is not repeatable.
        self._traces: dict[Any, _NodeTrace | None] = {}

    def run_node(self, n: Any) -> Any:
        """The result of a node."""
        parent: Any = super()
        mode = proxy_tensor.get_proxy_mode()
        if mode is None or n.op not in ("call_function", "call_method"):
            return parent.run_node(n)
        operands: list[Any] = []
        key: Any = None
        try:
            key = (n.op, n.target, *_described(self.fetch_args_kwargs_from_env(n), operands, mode.tracer))
        except _NotRepeatable:
            operands.clear()
        if not operands or torch._C._is_any_autocast_enabled():
            self._traces.clear()  # it may change a mode
            return parent.run_node(n)
        known = self._traces.get(key)
        if known is not None:
            with self._set_current_node(n):
                return known.repeat(operands, mode.tracer)
        last = _last_node(mode.tracer)
        result = parent.run_node(n)
        if key not in self._traces:
            self._traces[key] = _trace_of(last, result, operands, mode.tracer)
        return result


def trace_repeating(graph_module: Any) -> Callable[..., Sequence[Any]]:
    """A function that runs a graph, for ``make_fx``, as AOTAutograd does."""
    traceback: Any = import_module("torch.fx.traceback")

    def run(*args: Any) -> Sequence[Any]:
        with traceback.preserve_node_meta():
            return RepeatingInterpreter(graph_module).run(*args)

    return run


def _described(value: Any, operands: list[Any], tracer: Any) -> tuple[Any, ...]:
    """A hashable description of arguments, whose tensors are appended to ``operands``.

    Raises ``_NotRepeatable`` for values that may have a state.
    """
    if isinstance(value, torch.Tensor):
        return _described_tensor(value, operands, tracer)
    kind = cast("Any", type(value))
    if kind is float:
        return kind, value.hex()  # -0.0 differs from 0.0
    if kind in _PLAIN:
        return kind, value
    if kind is slice:
        parts: Sequence[Any] = (value.start, value.stop, value.step)
    elif isinstance(value, dict):
        parts = [item for pair in cast("dict[Any, Any]", value).items() for item in pair]
    elif isinstance(value, (tuple, list)):
        parts = cast("Any", value)
    else:
        raise _NotRepeatable
    return kind, *(_described(each, operands, tracer) for each in parts)


def _described_tensor(value: Any, operands: list[Any], tracer: Any) -> tuple[Any, ...]:
    if type(value) is not fake_tensor.FakeTensor or value.layout is not torch.strided:
        raise _NotRepeatable
    if _has_symbols(value):
        raise _NotRepeatable  # no key of a dictionary
    slot = _slot(value, tracer)
    if slot is None or slot.constant is not None:
        raise _NotRepeatable
    memory = value.untyped_storage()._cdata
    aliases = [each.untyped_storage()._cdata == memory for each in operands]
    same = [each is value for each in operands]
    operands.append(value)
    facts = (value.dtype, value.device, value.storage_offset(), value.requires_grad)
    return "tensor", value.shape, value.stride(), *facts, *aliases, *same


def _slot(value: Any, tracer: Any) -> Any:
    """What the tracer knows of a tensor; ``None`` if that is nothing."""
    return proxy_tensor.get_proxy_slot(value, tracer, None)


def _last_node(tracer: Any) -> Any:
    return next(iter(reversed(tracer.graph.nodes)))


def _trace_of(last: Any, result: Any, operands: Sequence[Any], tracer: Any) -> _NodeTrace | None:
    """The trace of a node that returned ``result``: what the graph has after ``last``."""
    try:
        places: dict[Any, _Operand | _Added] = {}
        for index, value in enumerate(operands):
            places.setdefault(_slot(value, tracer).proxy.node, _Operand(index))
        added: list[_Template] = []
        node = last.next
        while node.op != "root":
            added.append(_template(node, places, tracer))
            places[node] = _Added(len(added) - 1)
            node = node.next
        leaves, structure = pytree.tree_flatten(result)
        results = [_leaf(value, operands, places, tracer) for value in leaves]
        own = [value for value, leaf in zip(leaves, results, strict=True) if not _shares(leaf)]
        if len({value.untyped_storage()._cdata for value in own}) != len(own):
            return None
    except _NotRepeatable:
        return None
    return _NodeTrace(added, results, structure)


def _shares(leaf: _Result | _Operand) -> bool:
    """Whether a result has the memory of an operand."""
    return isinstance(leaf, _Operand) or leaf.base is not None


def _template(node: Any, places: dict[Any, _Operand | _Added], tracer: Any) -> _Template:
    def placed(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            if value not in places:
                raise _NotRepeatable
            return places[value]
        return value

    target, name = node.target, None
    if node.op != "call_function":
        raise _NotRepeatable
    if target is not operator.getitem:
        if not isinstance(target, torch._ops.OpOverload) or target.namespace not in NAMESPACES:
            raise _NotRepeatable
        if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
            raise _NotRepeatable
        name = tracer.graph._target_to_str(target.overloadpacket.__name__)
    if any(map(_has_symbols, pytree.tree_leaves(node.meta.get("val")))):
        raise _NotRepeatable  # a size that depends on data has a symbol of its own
    meta = {key: node.meta[key] for key in ("val", "tensor_meta") if key in node.meta}
    return _Template(target, name, _map(node.args, placed), _map(node.kwargs, placed), meta)


def _has_symbols(value: Any) -> bool:
    sizes: Sequence[Any] = (value,)
    if isinstance(value, torch.Tensor):
        sizes = (*value.shape, *value.stride(), value.storage_offset())
    return any(isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) for size in sizes)


def _leaf(
    value: Any, operands: Sequence[Any], places: dict[Any, _Operand | _Added], tracer: Any
) -> _Result | _Operand:
    """A value that a node returned. Raises ``_NotRepeatable`` for one that is no plain tensor."""
    for index, each in enumerate(operands):
        if each is value:
            return _Operand(index)
    if type(value) is not fake_tensor.FakeTensor or value.layout is not torch.strided:
        raise _NotRepeatable
    slot = _slot(value, tracer)
    place = None if slot is None or slot.constant is not None else places.get(slot.proxy.node)
    if not isinstance(place, _Added) or value.requires_grad:
        raise _NotRepeatable
    memory = value.untyped_storage()._cdata
    bases = [index for index, each in enumerate(operands) if each.untyped_storage()._cdata == memory]
    base, offset = (bases[0] if bases else None), value.storage_offset()
    if offset if base is None else operands[base].dtype != value.dtype:
        raise _NotRepeatable
    return _Result(place.index, tuple(value.shape), value.stride(), offset, value.dtype, value.device, base)


def _map(value: Any, function: Callable[[Any], Any]) -> Any:
    """Arguments of a node with ``function`` of what is no container."""
    if isinstance(value, (tuple, list)):
        parts = [_map(each, function) for each in cast("Sequence[Any]", value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, dict):
        return {key: _map(each, function) for key, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, slice):
        bounds = cast("slice[Any, Any, Any]", value)
        return slice(*(_map(each, function) for each in (bounds.start, bounds.stop, bounds.step)))
    return function(value)
