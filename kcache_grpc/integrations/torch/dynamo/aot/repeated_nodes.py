"""Traces nodes of a Dynamo graph that repeat, such as those of equal layers, once.

The trace of a node is what ``make_fx`` adds to its graph: operators, after all decompositions. A later node
of the same target, whose arguments are equal and whose tensors have the same sizes, strides, dtypes and
aliases, adds the same operators. They are copied, and no operator is dispatched for them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

from kcache_grpc.integrations.torch.dynamo.aot.node_traces import (
    Added,
    NodeTrace,
    NotRepeatable,
    Operand,
    Result,
    Template,
    map_arguments,
    proxy_slot,
)
from kcache_grpc.integrations.torch.dynamo.aot.resized_nodes import (
    ELEMENTWISE,
    ResizableTrace,
    described_elementwise,
    resizable,
)

torch: Any = import_module("torch")
fake_tensor: Any = import_module("torch._subclasses.fake_tensor")
proxy_tensor: Any = import_module("torch.fx.experimental.proxy_tensor")
pytree: Any = import_module("torch.utils._pytree")
symbolic_shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")

#: Namespaces of operators whose schemas tell their effects.
NAMESPACES = ("aten", "prims")
#: Arguments that are compared as they are.
_PLAIN = (bool, int, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class RepeatingInterpreter(symbolic_shapes.PropagateUnbackedSymInts):
    """Runs a graph of static shapes under ``make_fx``; none of its operators may write a tensor."""

    def __init__(self, graph_module: Any) -> None:
        parent: Any = super()
        parent.__init__(graph_module)
        #: Node without its operands' identities -> its trace, ``None`` where that is not repeatable.
        self._traces: dict[Any, NodeTrace | None] = {}
        #: The same of an elementwise node, without the sizes of its operands.
        self._resizable: dict[Any, ResizableTrace | None] = {}

    def run_node(self, n: Any) -> Any:
        """The result of a node."""
        parent: Any = super()
        mode = proxy_tensor.get_proxy_mode()
        if mode is None or n.op not in ("call_function", "call_method"):
            return parent.run_node(n)
        operands: list[Any] = []
        key: Any = None
        arguments = self.fetch_args_kwargs_from_env(n)
        try:
            key = (n.op, n.target, *_described(arguments, operands, mode.tracer))
        except NotRepeatable:
            operands.clear()
        if not operands or torch._C._is_any_autocast_enabled():
            self._traces.clear()  # it may change a mode
            self._resizable.clear()
            return parent.run_node(n)
        sized = None if key in self._traces else _sized_key(n, arguments, mode.tracer)
        like = None if sized is None else self._resizable.get(sized)
        if like is not None:
            self._traces[key] = like.resized(operands)
        known = self._traces.get(key)
        if known is not None:
            with self._set_current_node(n):
                return known.repeat(operands, mode.tracer)
        last = _last_node(mode.tracer)
        result = parent.run_node(n)
        if key not in self._traces:
            trace = self._traces[key] = _trace_of(last, result, operands, mode.tracer)
            if sized is not None and trace is not None:
                self._resizable.setdefault(sized, resizable(trace, operands))
        return result


def trace_repeating(graph_module: Any) -> Callable[..., Sequence[Any]]:
    """A function that runs a graph, for ``make_fx``, as AOTAutograd does."""
    traceback: Any = import_module("torch.fx.traceback")

    def run(*args: Any) -> Sequence[Any]:
        with traceback.preserve_node_meta():
            return RepeatingInterpreter(graph_module).run(*args)

    return run


def _sized_key(node: Any, arguments: Any, tracer: Any) -> Any:
    """A description of an elementwise node for which its sizes do not matter; ``None`` for others."""
    if node.target not in ELEMENTWISE:
        return None
    try:
        return node.op, node.target, *_described(arguments, [], tracer, described_elementwise)
    except NotRepeatable:
        return None


def _sizes(value: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    del operands
    return value.shape, value.stride(), value.storage_offset()


def _described(
    value: Any,
    operands: list[Any],
    tracer: Any,
    sizes: Callable[[Any, Sequence[Any]], tuple[Any, ...]] = _sizes,
) -> tuple[Any, ...]:
    """A hashable description of arguments, whose tensors are appended to ``operands``.

    ``sizes``: what it has of the sizes of a tensor, and of those before it. Raises ``NotRepeatable`` for
    values that may have a state.
    """
    if isinstance(value, torch.Tensor):
        return _described_tensor(value, operands, tracer, sizes)
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
        raise NotRepeatable
    return kind, *(_described(each, operands, tracer, sizes) for each in parts)


def _described_tensor(
    value: Any,
    operands: list[Any],
    tracer: Any,
    sizes: Callable[[Any, Sequence[Any]], tuple[Any, ...]],
) -> tuple[Any, ...]:
    if type(value) is not fake_tensor.FakeTensor or value.layout is not torch.strided:
        raise NotRepeatable
    if _has_symbols(value):
        raise NotRepeatable  # no key of a dictionary
    slot = proxy_slot(value, tracer)
    if slot is None or slot.constant is not None:
        raise NotRepeatable
    memory = value.untyped_storage()._cdata
    aliases = [each.untyped_storage()._cdata == memory for each in operands]
    same = [each is value for each in operands]
    sized = sizes(value, operands)
    operands.append(value)
    facts = (value.dtype, value.device, value.requires_grad)
    return "tensor", sized, *facts, *aliases, *same


def _last_node(tracer: Any) -> Any:
    return next(iter(reversed(tracer.graph.nodes)))


def _trace_of(last: Any, result: Any, operands: Sequence[Any], tracer: Any) -> NodeTrace | None:
    """The trace of a node that returned ``result``: what the graph has after ``last``."""
    try:
        places: dict[Any, Operand | Added] = {}
        for index, value in enumerate(operands):
            places.setdefault(proxy_slot(value, tracer).proxy.node, Operand(index))
        added: list[Template] = []
        node = last.next
        while node.op != "root":
            added.append(_template(node, places, tracer))
            places[node] = Added(len(added) - 1)
            node = node.next
        leaves, structure = pytree.tree_flatten(result)
        results = [_leaf(value, operands, places, tracer) for value in leaves]
        own = [value for value, leaf in zip(leaves, results, strict=True) if not _shares(leaf)]
        if len({value.untyped_storage()._cdata for value in own}) != len(own):
            return None
    except NotRepeatable:
        return None
    return NodeTrace(added, results, structure)


def _shares(leaf: Result | Operand) -> bool:
    """Whether a result has the memory of an operand."""
    return isinstance(leaf, Operand) or leaf.base is not None


def _template(node: Any, places: dict[Any, Operand | Added], tracer: Any) -> Template:
    def placed(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            if value not in places:
                raise NotRepeatable
            return places[value]
        return value

    target, name = node.target, None
    if node.op != "call_function":
        raise NotRepeatable
    if target is not operator.getitem:
        if not isinstance(target, torch._ops.OpOverload) or target.namespace not in NAMESPACES:
            raise NotRepeatable
        if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
            raise NotRepeatable
        name = tracer.graph._target_to_str(target.overloadpacket.__name__)
    if any(map(_has_symbols, pytree.tree_leaves(node.meta.get("val")))):
        raise NotRepeatable  # a size that depends on data has its own symbol
    meta = {key: node.meta[key] for key in ("val", "tensor_meta") if key in node.meta}
    return Template(target, name, map_arguments(node.args, placed), map_arguments(node.kwargs, placed), meta)


def _has_symbols(value: Any) -> bool:
    sizes: Sequence[Any] = (value,)
    if isinstance(value, torch.Tensor):
        sizes = (*value.shape, *value.stride(), value.storage_offset())
    return any(isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) for size in sizes)


def _leaf(
    value: Any, operands: Sequence[Any], places: dict[Any, Operand | Added], tracer: Any
) -> Result | Operand:
    """A value that a node returned. Raises ``NotRepeatable`` for one that is no plain tensor."""
    for index, each in enumerate(operands):
        if each is value:
            return Operand(index)
    if type(value) is not fake_tensor.FakeTensor or value.layout is not torch.strided:
        raise NotRepeatable
    slot = proxy_slot(value, tracer)
    place = None if slot is None or slot.constant is not None else places.get(slot.proxy.node)
    if not isinstance(place, Added) or value.requires_grad:
        raise NotRepeatable
    memory = value.untyped_storage()._cdata
    bases = [index for index, each in enumerate(operands) if each.untyped_storage()._cdata == memory]
    base, offset = (bases[0] if bases else None), value.storage_offset()
    if offset if base is None else operands[base].dtype != value.dtype:
        raise NotRepeatable
    return Result(place.index, tuple(value.shape), value.stride(), offset, value.dtype, value.device, base)
