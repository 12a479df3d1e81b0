"""Which nodes of a graph can be written as part of a program."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

from kcache_grpc.programs.torch.graph_text.operations import is_known, operation_name, overload_of
from kcache_grpc.programs.torch.graph_text.types import ELEMENT_TYPES
from kcache_grpc.programs.torch.recurrent import NAMESPACE

torch: Any = import_module("torch")

#: Operators that the dialect defines and that mean something else in a program.
_REJECTED = {
    "torch.aten.as_strided": "strides are not part of a program",
    "torch.aten.copy_": "it writes to an operand",
    "torch.aten.set_.source_Tensor": "it replaces the memory of an operand",
    "torch.aten.embedding_bag.padding_idx": "its gradient needs results that programs do not have",
}
#: Operators whose results may have other dtypes than their fake results.
_OTHER_DTYPES = ("aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional")


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
