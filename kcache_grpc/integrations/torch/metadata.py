"""What a call's arguments are, apart from the tensors' elements: the key of an eager kernel.

Two forms: ``call_key``, a tuple that costs little and is exact for the arguments as they were passed, and
``describe``, which names every parameter of the operator's schema, defaults included, for the table on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, cast

torch: Any = import_module("torch")


_TENSORS = (torch.Tensor, torch.nn.Parameter)
#: Values whose equality is identity of meaning within one type.
_PLAIN = (bool, int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_keys = torch._C._dispatch_keys


class NotKeyed(Exception):
    """An argument of a kind that no kernel is looked up by; ``reason`` is the counter's name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Param(NamedTuple):
    """One parameter of a schema with the value of a call."""

    name: str
    kind: str
    value: Any


def call_key(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """A hashable key of one call as its arguments were passed. Raises ``NotKeyed``.

    Numbers of different types differ, as do -0.0 and 0.0; NaN equals itself.
    """
    parts: list[Any] = []
    for value in args:
        if value.__class__ is torch.Tensor:
            keys = _keys(value).raw_repr()
            parts += (value.dtype, value.shape, value.stride(), keys, value.requires_grad)
        else:
            _add_value(parts, value)
    for name in sorted(kwargs) if len(kwargs) > 1 else kwargs:
        parts.append(name)
        _add_value(parts, kwargs[name])
    return tuple(parts)


def _add_value(parts: list[Any], value: Any) -> None:
    kind: Any = value.__class__
    if kind in _TENSORS:
        keys = _keys(value).raw_repr()
        parts += (value.dtype, value.shape, value.stride(), keys, value.requires_grad)
    elif kind in _PLAIN:
        parts += (kind, value)
    elif kind is float:
        parts += (float, value.hex())
    elif kind is complex:
        parts += (complex, value.real.hex(), value.imag.hex())
    elif kind in (list, tuple, torch.Size):
        parts += (list, len(value))
        for element in value:
            _add_value(parts, element)
    else:
        raise NotKeyed("subclass" if isinstance(value, torch.Tensor) else "argument_kind")


def parameters(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Param]:
    """All parameters of a call, defaults filled in. Raises ``NotKeyed`` for arguments that do not fit."""
    bound: list[Param] = []
    named = dict(kwargs)
    for index, argument in enumerate(schema.arguments):
        if index < len(args):
            value = args[index]
        elif argument.name in named:
            value = named.pop(argument.name)
        elif argument.has_default_value():
            value = argument.default_value
        else:
            raise NotKeyed("arguments")
        bound.append(Param(argument.name, str(argument.type), value))
    if named or len(args) > len(schema.arguments):
        raise NotKeyed("arguments")
    return bound


def tensors_of(values: Sequence[Any]) -> list[Any]:
    """The tensors among values and lists of values, in order."""
    tensors: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors += tensors_of(cast("Sequence[Any]", value))
    return tensors


def describe(params: Sequence[Param], *, dynamic: bool) -> list[dict[str, Any]]:
    """One JSON object for each parameter; with ``dynamic`` tensors have a rank only. Raises ``NotKeyed``."""
    return [
        {"name": param.name, **_describe(param.value, "Optional" in param.kind, dynamic)} for param in params
    ]


def digest(description: Sequence[Mapping[str, Any]], context: Mapping[str, Any]) -> str:
    """The first 32 hex digits of the SHA-256 of a description's canonical JSON text."""
    text = json.dumps([description, context], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _describe(value: Any, optional: bool, dynamic: bool) -> dict[str, Any]:
    suffix = "_optional" if optional else ""
    match value:
        case torch.Tensor():
            return {"kind": f"tensor{suffix}", **_describe_tensor(value, dynamic)}
        case list() | tuple():
            elements: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
            parts = [_describe(element, False, dynamic) for element in elements]
            tensors = any(part["kind"] == "tensor" for part in parts)
            return {"kind": f"{'tensor_' if tensors else ''}list{suffix}", "values": parts}
        case None:
            return {"kind": "none"}
        case bool() | int():
            return {"kind": "scalar", "type": type(value).__name__, "value": str(value)}
        case float():
            return {"kind": "scalar", "type": "float", "value": value.hex()}
        case complex():
            return {"kind": "scalar", "type": "complex", "value": f"{value.real.hex()},{value.imag.hex()}"}
        case str():
            return {"kind": "string", "value": value}
        case torch.dtype() | torch.device() | torch.layout() | torch.memory_format():
            return {"kind": type(value).__name__, "value": str(value)}
        case _:
            raise NotKeyed("argument_kind")


def _describe_tensor(value: Any, dynamic: bool) -> dict[str, Any]:
    description: dict[str, Any] = {
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": value.device.type,
        "index": value.device.index,
        "layout": str(value.layout).removeprefix("torch."),
    }
    if dynamic:
        return {**description, "rank": value.dim()}
    sizes, strides = list(value.shape), list(value.stride())
    return {**description, "sizes": sizes, "strides": strides}
