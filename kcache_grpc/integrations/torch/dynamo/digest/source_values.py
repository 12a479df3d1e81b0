"""Canonical text of values and functions in graphs of Dynamo: the same in each process with the same code."""

from __future__ import annotations

import builtins
import enum
import functools
import math
import operator
import os
import types
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

torch: Any = import_module("torch")

#: Namespaces of operators whose code is PyTorch's own.
_NAMESPACES = frozenset(("aten", "prims"))
#: Operators with graphs as arguments, whose meaning is in the graph of the call.
_HIGHER_ORDER = frozenset(
    ("autograd_function_apply", "cond", "flex_attention", "scan", "associative_scan", "while_loop", "wrap")
    + ("tag_activation_checkpoint", "wrap_activation_checkpoint", "wrap_with_autocast")
    + ("wrap_with_set_grad_enabled",)
)
#: Modules that have functions under names other than the functions' own.
_HOLDERS = (
    ("torch", "torch._C._VariableFunctions", "torch._C._nn", "torch.nn.functional", "torch._C._fft")
    + ("torch._C._linalg", "torch._C._special", "torch._C._nested", "torch._C._sparse", "torch._C")
)  # fmt: skip
_ROOTS = {"torch": torch, "_operator": operator, "operator": operator, "builtins": builtins, "math": math}
_NATIVE = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
#: Types of PyTorch whose text states the value.
_TEXTUAL = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class NotDigestible(Exception):
    """A graph that has no digest: equal texts would not prove equal results. ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def value_text(value: Any, node: Callable[[Any], str], symbolic: Callable[[Any], str]) -> str:
    """The text of an argument of a call. ``node`` and ``symbolic`` are those of nodes and symbolic scalars.

    Integers, floats and booleans differ, as do lists and tuples, -0.0 and 0.0. Raises ``NotDigestible``.
    """
    kind: Any = value.__class__
    if kind is torch.fx.Node:
        return node(value)
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain(value)
    brackets = _SEQUENCES.get(kind)
    if brackets is not None:
        return brackets + ",".join([value_text(element, node, symbolic) for element in value]) + ")"
    if kind in _SYMBOLIC:
        return symbolic(value)
    if kind in _MAPPINGS:
        entries = [
            value_text(key, node, symbolic) + ":" + value_text(element, node, symbolic)
            for key, element in value.items()
        ]
        return "dict(" + ",".join(entries) + ")"
    if kind is slice:
        return "slice" + value_text((value.start, value.stop, value.step), node, symbolic)
    if isinstance(value, enum.Enum):
        return f"{function_text(kind)}.{value.name}"
    if kind.__hash__ is None:
        raise NotDigestible(f"a constant of type {_type_name(value)} in the graph")
    return function_text(value)


@functools.lru_cache(maxsize=4096)
def function_text(target: Any) -> str:
    """The name by which a function, operator or class of PyTorch or of Python's library is found again.

    Raises ``NotDigestible`` for other code: functions of users, closures, custom operators, Triton kernels.
    """
    if isinstance(target, torch._ops.OpOverload):
        packet, overload = target._overloadpacket, target._overloadname
        if getattr(packet, overload, None) is not target:
            raise NotDigestible(f"the operator {target.name()} is not the registered one")
        return f"{_packet_text(packet)}.{overload} {target._schema}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"{_packet_text(target)} packet"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return _higher_order_text(target)
    if isinstance(target, (types.FunctionType, type)):
        return _python_text(target)
    if isinstance(target, _NATIVE):
        return _native_text(target)
    if isinstance(target, types.ModuleType) or not callable(target):
        raise NotDigestible(f"a constant of type {_type_name(target)} in the graph")
    return _instance_text(target)


def method_text(name: Any) -> str:
    """The name of a method of tensors whose code is PyTorch's own."""
    if type(name) is not str:
        raise NotDigestible(f"a method of type {_type_name(name)}")
    return _method_text(name, getattr(torch.Tensor, name, None))


@functools.lru_cache(maxsize=2048)
def _method_text(name: str, method: Any) -> str:
    if isinstance(method, types.FunctionType) and not _is_own_code(method):
        raise NotDigestible(f"the method {name} of tensors is not PyTorch's")
    if not isinstance(method, (types.FunctionType, types.GetSetDescriptorType, *_NATIVE)):
        raise NotDigestible(f"the method {name} of something that is no tensor")
    return name


def _packet_text(packet: Any) -> str:
    namespace, _, name = packet._qualified_op_name.partition("::")
    if namespace not in _NAMESPACES:
        raise NotDigestible(f"the custom operator {packet._qualified_op_name}")
    if getattr(getattr(torch.ops, namespace), name, None) is not packet:
        raise NotDigestible(f"the operator {packet._qualified_op_name} is not the registered one")
    return packet._qualified_op_name


def _higher_order_text(target: Any) -> str:
    name = target.name()
    if name not in _HIGHER_ORDER:
        raise NotDigestible(f"the higher-order operator {name}")
    if not type(target).__module__.startswith("torch."):
        raise NotDigestible(f"the higher-order operator {name} is not PyTorch's")
    return f"higher_order::{name} {type(target).__module__}.{type(target).__qualname__}"


def _python_text(target: Any) -> str:
    """Functions and classes in Python: their module and name, if their code is in PyTorch's directory."""
    module = str(target.__module__)
    if isinstance(target, types.FunctionType) and not _is_own_code(target):
        raise NotDigestible(f"the function {module}.{target.__qualname__}, which is not PyTorch's")
    for text in (f"{module}:{target.__qualname__}", f"{module}:{target.__name__}"):
        if module.partition(".")[0] in _ROOTS and _resolved(text) is target:
            return text
    raise NotDigestible(f"the function {module}.{target.__qualname__}, which no name denotes")


def _native_text(target: Any) -> str:
    own = f"{getattr(target, '__module__', None)}:{target.__qualname__}"
    for text in (own, *(f"{holder}:{target.__name__}" for holder in _HOLDERS)):
        if text.partition(":")[0].partition(".")[0] in _ROOTS and _resolved(text) is target:
            return text
    raise NotDigestible(f"the native function {own}, which no name denotes")


def _instance_text(target: Any) -> str:
    """Callable objects that PyTorch keeps under a name, such as dispatchers of ``torch.nn.functional``."""
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", None)
    text = f"{module}:{name}"
    if isinstance(module, str) and module.partition(".")[0] == "torch" and _resolved(text) is target:
        return text
    raise NotDigestible(f"a callable of type {_type_name(target)}")


def _resolved(text: str) -> Any:
    path, _, name = text.partition(":")
    try:
        return functools.reduce(getattr, name.split("."), import_module(path))
    except (ImportError, AttributeError, TypeError, ValueError):
        return None


def _is_own_code(function: Any) -> bool:
    return function.__code__.co_filename.startswith(_DIRECTORY)


def _type_name(value: Any) -> str:
    kind: Any = value.__class__
    return f"{kind.__module__}.{kind.__qualname__}"


def _textual(kind: Any) -> Callable[[Any], str]:
    texts: dict[Any, str] = {}

    def text(value: Any) -> str:
        known = texts.get(value)
        if known is None:
            known = texts[value] = f"{kind.__name__} {value}"
        return known

    return text


def _complex(value: complex) -> str:
    return f"complex({value.real.hex()},{value.imag.hex()})"


_DIRECTORY = str(Path(torch.__file__).parent) + os.sep
_PLAIN: Mapping[Any, Callable[[Any], str]] = {
    type(None): repr,
    bool: repr,
    int: repr,
    str: repr,
    bytes: repr,
    float: float.hex,
    complex: _complex,
    type(...): repr,
    range: repr,
    **{kind: _textual(kind) for kind in _TEXTUAL},
}
_immutable: Any = import_module("torch.fx.immutable_collections")
_SEQUENCES: Mapping[Any, str] = {
    tuple: "tuple(",
    list: "list(",
    _immutable.immutable_list: "list(",
    torch.Size: "size(",
}
_MAPPINGS = frozenset((dict, _immutable.immutable_dict))
_SYMBOLIC: Sequence[Any] = (torch.SymInt, torch.SymFloat, torch.SymBool)
