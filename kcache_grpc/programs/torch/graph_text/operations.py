"""Operations of the Torch dialect for operators of PyTorch, and which of them a service may lower."""

from __future__ import annotations

import functools
from importlib import import_module
from pathlib import Path
from typing import Any

torch: Any = import_module("torch")
aten: Any = torch.ops.aten

#: Written by ``scripts/generate_torch_operations.py``: a name a line; "+" before those that torch-mlir does
#: not define and that the service lowers all the same.
_FILE = Path(__file__).with_name("torch_operations.txt")
#: Overloads that take a tensor and are called with a scalar -> the overload for scalars.
_SCALAR = {
    "torch.aten.mul.Tensor": aten.mul.Scalar,
    "torch.aten.div.Tensor": aten.div.Scalar,
    "torch.aten.add.Tensor": aten.add.Scalar,
    "torch.aten.sub.Tensor": aten.sub.Scalar,
}


@functools.cache
def _names() -> tuple[frozenset[str], frozenset[str]]:
    lines = _FILE.read_text().splitlines()
    return (
        frozenset(f"torch.{line}" for line in lines if not line.startswith("+")),
        frozenset(f"torch.{line[1:]}" for line in lines if line.startswith("+")),
    )


def operation_name(schema: Any) -> str:
    """The dialect's name of an operator, such as ``torch.aten.add.Tensor``."""
    name = f"torch.{schema.name.replace('::', '.')}"
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def is_defined(name: str) -> bool:
    """Whether the dialect defines an operation; others are written as ``torch.operator``."""
    return name in _names()[0]


def is_known(name: str) -> bool:
    """Whether the service may lower an operation."""
    defined, lowered = _names()
    return name in defined or name in lowered


def overload_of(node: Any) -> Any:
    """The overload that is written for a node: that for scalars where PyTorch traced that for tensors."""
    target = node.target
    if target is aten.lift_fresh_copy.default:
        return aten.clone.default
    if target is aten._unsafe_index_put.default:
        return aten.index_put.default
    if target is aten.squeeze.dims and all(axis >= 0 for axis in node.args[1]):
        return torch.ops.prims.squeeze.default
    scalar = _SCALAR.get(operation_name(target._schema))
    if scalar is not None and len(node.args) > 1 and _is_scalar(node.args[1]):
        return scalar
    return target


def _is_scalar(value: Any) -> bool:
    if isinstance(value, torch.fx.Node):
        return not isinstance(value.meta.get("val"), torch.Tensor)
    return isinstance(value, (bool, int, float, complex))
