"""Operators by name, and which of them kernels can stand for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.errors import ArgumentError

torch: Any = import_module("torch")

_UNSUPPORTED_TAGS = {
    "nondeterministic_seeded": "random",
    "dynamic_output_shape": "data_dependent",
    "data_dependent_output": "data_dependent",
    "inplace_view": "in_place",
}
#: Tensor arguments whose elements an operator checks: positions in another argument, or counts.
_CHECKED_ARGUMENTS = frozenset(("index", "indices", "offsets", "lengths", "repeats", "pivots", "LU_pivots"))
#: Other operators that raise for some elements: classes out of range, singular matrices, probabilities.
_CHECKING = (
    "nll_loss", "cross_entropy_loss", "multi_margin_loss", "multilabel_margin_loss", "ctc_loss", "_ctc_loss",
    "binary_cross_entropy", "histc", "linalg_", "_linalg_", "inverse", "cholesky",
)  # fmt: skip
_NOT_CHECKING = ("binary_cross_entropy_with_logits",)
#: Operators that raise where an integer is divided by a tensor that has a zero.
_DIVISIONS = frozenset(("div", "divide", "floor_divide", "remainder", "fmod"))
_TRUE_DIVISIONS = frozenset(("aten::div.Tensor", "aten::divide.Tensor"))


def overload_of(op: Any) -> Any:
    """The ``OpOverload`` of an overload, a packet with one overload or a default one, or a name such as
    ``"aten::add.Tensor"``. Raises ``ArgumentError`` for anything else.
    """
    if isinstance(op, torch._ops.OpOverload):
        return op
    if isinstance(op, torch._ops.OpOverloadPacket):
        return _of_packet(op)
    if not isinstance(op, str):
        raise ArgumentError(
            f"op is {op!r}; pass an operator of torch.ops, or a name such as 'aten::add.Tensor'"
        )
    namespace, _, name = op.replace("::", ".", 1).partition(".")
    name, _, overload = name.partition(".")
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        return getattr(packet, overload) if overload else _of_packet(packet)
    except AttributeError as error:
        raise ArgumentError(f"PyTorch has no operator {op!r}: {error}") from error


def _of_packet(packet: Any) -> Any:
    # Overloads only on Python numbers, which PyTorch has for its scripts, give no tensor.
    names = [name for name in packet.overloads() if _gives_tensors(getattr(packet, name))]
    if "default" in names:
        return packet.default
    if len(names) == 1:
        return getattr(packet, names[0])
    raise ArgumentError(f"{packet} has the overloads {', '.join(sorted(names))}; name one of them")


def _gives_tensors(op: Any) -> bool:
    return any(str(value.type).startswith("Tensor") for value in op._schema.returns)


def unsupported_reason(op: Any) -> str:
    """Why no call of an operator can have a kernel, as the name of a counter; empty where one can."""
    schema = op._schema
    if schema.is_mutable:
        return "in_place"
    if any(value.alias_info is not None for value in schema.returns):
        return "view"
    for tag in op.tags:
        if tag.name in _UNSUPPORTED_TAGS:
            return _UNSUPPORTED_TAGS[tag.name]
    if _checks_elements(op):
        return "element_checks"
    if not schema.returns or any(str(value.type) != "Tensor" for value in schema.returns):
        return "results"
    return ""


def _checks_elements(op: Any) -> bool:
    """Whether the operator raises for some elements of its arguments: a kernel would compute something."""
    for argument in op._schema.arguments:
        if argument.name in _CHECKED_ARGUMENTS and "Tensor" in str(argument.type):
            return True
    name = op._schema.name.partition("::")[2]
    return name.startswith(_CHECKING) and not name.startswith(_NOT_CHECKING)


def may_divide_by_zero(op: Any, tensors: Sequence[Any]) -> bool:
    """Whether a call divides integers by those of a tensor, and raises where one of them is 0."""
    if op._schema.name.partition("::")[2] not in _DIVISIONS or op._name in _TRUE_DIVISIONS:
        return False
    divisor = op._schema.arguments[1]
    return str(divisor.type) == "Tensor" and not any(
        tensor.is_floating_point() or tensor.is_complex() for tensor in tensors
    )


def composite(op: Any) -> bool:
    """Whether autograd differentiates the operator through its parts: it has no kernel below autograd."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op._name, "CompositeImplicitAutograd"))
