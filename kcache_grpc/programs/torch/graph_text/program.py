"""Parts of an ATen graph as programs, and which nodes can be written as such."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from kcache_grpc.errors import ArgumentError, UnsupportedOp
from kcache_grpc.programs.torch.graph_text.writer import (
    ELEMENT_TYPES,
    FunctionWriter,
    is_known,
    operation_name,
    overload_of,
)
from kcache_grpc.programs.torch.negative_indices import count_from_the_end, count_truths
from kcache_grpc.programs.torch.recurrent import NAMESPACE

__all__ = ["Island", "device_of", "line_owners", "prepare_graph", "unsupported_reason", "write_program"]

torch: Any = import_module("torch")

Node = Any
Order = Sequence[int] | None
Sample = Mapping[str, int]
#: Operators that the dialect defines and that mean something else in a program.
_REJECTED = {
    "torch.aten.as_strided": "strides are not part of a program",
    "torch.aten.copy_": "it writes to an operand",
    "torch.aten.set_.source_Tensor": "it replaces the memory of an operand",
    "torch.aten.embedding_bag.padding_idx": "its gradient needs results that programs do not have",
}
#: Operators whose results may have other dtypes than their fake results.
_OTHER_DTYPES = ("aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional")


@dataclass(frozen=True)
class Island:
    """Nodes of one graph such that no path between two of them leaves it.

    ``nodes``: calls, in topological order. ``inputs``: tensors from outside that they read. ``outputs``:
    tensors of the nodes that are results.
    """

    nodes: Sequence[Node]
    inputs: Sequence[Node]
    outputs: Sequence[Node]


def prepare_graph(graph: Any) -> None:
    """Give a decomposed graph the form in which its nodes can be written, in place."""
    count_from_the_end(graph)
    count_truths(graph)


def write_program(
    island: Island,
    samples: Sequence[Sample] = (),
    *,
    input_orders: Sequence[Order] | None = None,
    output_orders: Sequence[Order] | None = None,
) -> bytes:
    """The text of an island as a TORCH program.

    ``samples``: none where all sizes are static, else two, symbol -> size. ``input_orders`` and
    ``output_orders``: for each tensor the order in which the program has its axes; ``None``: as they are.
    Raises ``UnsupportedOp`` and ``ArgumentError`` for what cannot be written; ``metadata["node"]`` is the
    name of the node.
    """
    functions = _functions(island, samples, input_orders, output_orders)
    axes = _open_axes(island, input_orders, samples) if samples else []
    attributes = f" attributes {{kcache.open_axes = [{', '.join(axes)}]}}" if axes else ""
    return f"module{attributes} {{\n{''.join(text for text, _ in functions)}}}\n".encode()


def line_owners(
    island: Island,
    samples: Sequence[Sample] = (),
    *,
    input_orders: Sequence[Order] | None = None,
    output_orders: Sequence[Order] | None = None,
) -> list[Node | None]:
    """For each line of what ``write_program`` returns, the node whose operations it has; ``None``: of none.

    A constant belongs to the first node that reads it.
    """
    functions = _functions(island, samples, input_orders, output_orders)
    return [None, *(owner for _, owners in functions for owner in owners), None]


def _functions(
    island: Island,
    samples: Sequence[Sample],
    input_orders: Sequence[Order] | None,
    output_orders: Sequence[Order] | None,
) -> list[tuple[str, list[Node | None]]]:
    """The functions of a program, and the owners of their lines."""
    ins = input_orders or [None] * len(island.inputs)
    outs = output_orders or [None] * len(island.outputs)
    return [
        _function(name, island, sample, ins, outs)
        for name, sample in zip(("main", "main_at_other_sizes"), samples or ({},), strict=False)
    ]


def _function(
    name: str, island: Island, sample: Sample, input_orders: Sequence[Order], output_orders: Sequence[Order]
) -> tuple[str, list[Node | None]]:
    writer = FunctionWriter(_Sizes(sample))
    for node, order in zip(island.inputs, input_orders, strict=True):
        writer.parameter(node, order)
    owners: list[Node | None] = [None] * (1 + writer.lines)
    for node in island.nodes:
        try:
            writer.write(node)
        except (UnsupportedOp, ArgumentError) as error:
            error.metadata["node"] = node.name
            raise
        owners += [node] * (1 + writer.lines - len(owners))
    text = writer.text(name, island.outputs, output_orders)
    return text, owners + [None] * (text.count("\n") - len(owners))


class _Sizes:
    """Evaluates sizes at a sample; each expression once."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._known: dict[Any, Any] = {}

    def __call__(self, size: Any) -> Any:
        if isinstance(size, (bool, int, float)):
            return size
        formula = size.node.expr
        if formula not in self._known:
            self._known[formula] = self._evaluate(formula)
        return self._known[formula]

    def _evaluate(self, formula: Any) -> Any:
        sympy: Any = import_module("sympy")
        values = {symbol: sympy.Integer(self._sample[str(symbol)]) for symbol in formula.free_symbols}
        value = formula.xreplace(values)
        if value in (sympy.true, sympy.false):
            return bool(value)
        return int(value) if value.is_Integer else float(value)


def _open_axes(island: Island, orders: Sequence[Order] | None, samples: Sequence[Sample]) -> list[str]:
    """Each axis of an argument whose size differs between samples: ``[argument, axis, "name"]``."""
    axes: list[str] = []
    first, second = map(_Sizes, samples)
    names: dict[str, str] = {}
    ins = orders or [None] * len(island.inputs)
    for position, (node, order) in enumerate(zip(island.inputs, ins, strict=True)):
        shape = node.meta["val"].shape
        for axis, source in enumerate(order or range(len(shape))):
            if first(shape[source]) != second(shape[source]):
                name = names.setdefault(str(shape[source].node.expr), f"axis {axis} of input {position}")
                axes.append(f'[{position}, {axis}, "{name}"]')
    return axes


def unsupported_reason(node: Any) -> str | None:
    """Why a node cannot be part of a program; ``None`` if it can."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims", NAMESPACE):
        return "it is no operator of ATen"
    schema = target._schema
    name = operation_name(schema)
    if name in _REJECTED:
        return _REJECTED[name]
    if "quantize" in schema.name.partition("::")[2]:
        return "a tensor is quantized, which its fake tensor does not say"
    if schema.is_mutable:
        return "it writes to an operand"
    if torch.Tag.nondeterministic_seeded in target.tags:
        return "it draws random numbers"
    if not is_known(operation_name(overload_of(node)._schema)):
        return "kcache does not lower it"
    if schema.name.startswith(f"{NAMESPACE}::grouped_") and not all(map(_is_static, node.all_input_nodes)):
        return "a size of its groups is dynamic"
    if target.namespace == NAMESPACE and not isinstance(node.args[0].meta["val"].shape[0], int):
        return "its number of steps is dynamic"
    return _values_reason(node)


def _is_static(node: Any) -> bool:
    return all(isinstance(size, int) for size in node.meta["val"].shape)


def _values_reason(node: Any) -> str | None:
    value = node.meta.get("val")
    results = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else [value]
    for result in results:
        if result is not None and not isinstance(result, torch.Tensor):
            return "its result is no tensor"
    if any(map(_may_have_another_dtype, node.all_input_nodes)):
        return "an operand has another dtype than its fake tensor"
    operands = [each.meta.get("val") for each in node.all_input_nodes]
    if _raises(node.target._schema.name, operands):
        return "it raises an error"
    tensors = [tensor for tensor in (*results, *operands) if isinstance(tensor, torch.Tensor)]
    if len(set(map(device_of, tensors))) > 1:
        return "its tensors are on several devices"
    for tensor in (*results, *operands):
        reason = _tensor_reason(tensor) if isinstance(tensor, torch.Tensor) else None
        if reason is not None:
            return reason
    return None


def device_of(tensor: Any) -> Any:
    """The device of a tensor, which may be a fake one.

    ``device`` of a fake tensor is "meta" while any thread runs an operator of its mode.
    """
    fake = getattr(tensor, "fake_device", None)
    return tensor.device if fake is None else fake


def _raises(operator: str, operands: Sequence[Any]) -> bool:
    """Whether eager mode raises for what a kernel would compute: extremes of nothing, differences of bool."""
    tensors = [each for each in operands if isinstance(each, torch.Tensor)]
    if operator in ("aten::max", "aten::min"):
        return any(type(size) is int and size == 0 for tensor in tensors for size in tensor.shape)
    return operator == "aten::sub" and any(tensor.dtype is torch.bool for tensor in tensors)


def _may_have_another_dtype(operand: Any) -> bool:
    source = operand.args[0] if operand.target is operator.getitem else operand
    return isinstance(source.target, torch._ops.OpOverload) and source.target._schema.name in _OTHER_DTYPES


def _tensor_reason(tensor: Any) -> str | None:
    """Why a kernel cannot take or make a tensor."""
    if tensor.layout is not torch.strided:
        return f"a tensor has the layout {tensor.layout}"
    if tensor.dtype not in ELEMENT_TYPES:
        return f"a tensor has the dtype {tensor.dtype}"
    device = device_of(tensor)
    if device.type not in ("cpu", "cuda"):
        return f"a tensor is on the device {device}"
    if tensor.is_conj() or tensor.is_neg():
        return "a tensor is a lazy conjugate or negative"
    if tensor.is_quantized or tensor.is_nested:
        return "a tensor is quantized or nested"
    return None
