"""Tensors of an exported program, by name: parameters, buffers and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from kcache_grpc.errors import ArgumentError

torch: Any = import_module("torch")

PARAMETER, BUFFER, CONSTANT = "parameter", "buffer", "constant"
#: A dictionary of a module and a key in it: modules keep tensors in three of them.
Slot = tuple[dict[str, Any], str]


@dataclass(frozen=True)
class StateTensor:
    """``persistent``: whether ``state_dict`` has the buffer."""

    name: str
    kind: str
    persistent: bool
    value: Any = field(repr=False)


def state_of(exported: Any) -> list[StateTensor]:
    """All tensors that an exported program holds, those included that its graph does not read."""
    signature = exported.graph_signature
    buffers = set(signature.buffers)
    state = [
        StateTensor(name, PARAMETER if isinstance(value, torch.nn.Parameter) else BUFFER, True, value)
        for name, value in exported.state_dict.items()
    ]
    for name, value in exported.constants.items():
        if isinstance(value, torch.Tensor):
            state.append(StateTensor(name, BUFFER if name in buffers else CONSTANT, False, value))
    return state


def register(module: Any, state: Sequence[StateTensor]) -> None:
    """Give a module tensors under their names, with a module for each part of a name."""
    for tensor in state:
        *path, name = tensor.name.split(".")
        owner = module
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, torch.nn.Module())
            owner = owner._modules[part]
        if tensor.kind == PARAMETER:
            owner.register_parameter(name, tensor.value)
        elif tensor.kind == BUFFER:
            owner.register_buffer(name, tensor.value, persistent=tensor.persistent)
        else:
            setattr(owner, name, tensor.value)


def slot_of(module: Any, name: str) -> Slot:
    """Where a module keeps the tensor of a name: read in each call, so that a new one counts."""
    *path, last = name.split(".")
    for part in path:
        module = module._modules[part]
    tables: tuple[Mapping[str, Any], ...] = (module._parameters, module._buffers, module.__dict__)
    for table in tables:
        if last in table:
            return table, last  # pyright: ignore[reportReturnType]
    raise ArgumentError(f"the exported program does not hold the value of {name}")
