"""Legalizes poolings with ``ceil_mode``, which torch-mlir pads before the first element, not after the last.

A maximum is computed of a padded tensor instead. Means are rejected: their last windows have other divisors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Module, Op, Value

_POOL = re.compile(r"torch\.aten\.(max|avg)_pool([123])d(_with_indices)?")
_TENSOR = re.compile(r"!torch\.vtensor<\[([^\]]*)\],(f16|bf16|f32|f64)>")

#: Index of the operand ``ceil_mode``.
_CEIL_MODE_OPERAND = {"max": 5, "avg": 4}


class _WindowAxis(NamedTuple):
    """The geometry of a window along one axis."""

    size: int
    window: int
    stride: int
    padding: int
    dilation: int

    @property
    def high_padding(self) -> int:
        """Padding after the last element for windows that start inside; negative if elements remain."""
        reach = self.dilation * (self.window - 1) + 1
        count = -((reach - self.size - 2 * self.padding) // self.stride) + 1
        if (count - 1) * self.stride >= self.size + self.padding:
            count -= 1
        return (count - 1) * self.stride + reach - self.size - self.padding


def legalize_ceil_mode(module: Module) -> None:
    """Rewrite poolings with ``ceil_mode`` in place. Raises ``UnsupportedOp`` for unsupported ones."""
    with module.context:
        for operation in mlir.all_operations(module.operation):
            match = _POOL.fullmatch(operation.name)
            if match is not None and _flag(operation.operands[_CEIL_MODE_OPERAND[match[1]]]) is not False:
                with mlir.native_ir().InsertionPoint(operation), operation.location:
                    _rewrite(operation, match[1])


def _rewrite(operation: Op, kind: str) -> None:
    axes = _axes(operation, kind)
    if axes is None:
        raise _unsupported(operation, "with dynamic sizes")
    if any(axis.high_padding > axis.padding for axis in axes):
        if kind == "avg":
            raise _unsupported(operation, "for a mean")
        results = list(operation.results)
        if len(results) > 1 and any(True for _ in results[1].uses):
            raise _unsupported(operation, "with indices")
        _pad(operation, axes)
    operation.operands[_CEIL_MODE_OPERAND[kind]] = mlir.native_torch().constant_bool(False)


def _pad(operation: Op, axes: Sequence[_WindowAxis]) -> None:
    source = operation.operands[0]
    match = _TENSOR.fullmatch(str(source.type))
    assert match is not None
    sizes = [int(size) for size in match[1].split(",")]
    pad_amounts: list[int] = []
    for axis in reversed(axes):
        pad_amounts += [axis.padding, max(axis.high_padding, 0)]
    first_axis = len(sizes) - len(axes)
    for index, axis in enumerate(axes):
        sizes[first_axis + index] += axis.padding + max(axis.high_padding, 0)
    type = f"!torch.vtensor<[{','.join(map(str, sizes))}],{match[2]}>"
    torch = mlir.native_torch()
    minus_infinity = torch.constant_float(-math.inf)
    padded_type = mlir.native_ir().Type.parse(type)
    operation.operands[0] = torch.aten_constant_pad_nd(
        padded_type, source, _list(pad_amounts), minus_infinity
    )
    operation.operands[3] = _list([0] * len(axes))


def _axes(operation: Op, kind: str) -> list[_WindowAxis] | None:
    match = _TENSOR.fullmatch(str(operation.operands[0].type))
    lists = [_numbers(operation.operands[index]) for index in (1, 2, 3)]
    dilations = _numbers(operation.operands[4]) if kind == "max" else [1]
    if match is None or "?" in match[1] or dilations is None or None in lists:
        return None
    window, stride, padding = (values or [] for values in lists)
    rank = int(operation.name.partition("_pool")[2][0])
    sizes = [int(size) for size in match[1].split(",")][-rank:]
    parameters = [
        _broadcast_list(parameter, rank) for parameter in (window, stride or window, padding, dilations)
    ]
    if len(sizes) != rank or any(len(parameter) != rank for parameter in parameters):
        return None
    return [_WindowAxis(*numbers) for numbers in zip(sizes, *parameters, strict=True)]


def _broadcast_list(numbers: list[int], rank: int) -> list[int]:
    return numbers * rank if len(numbers) == 1 else numbers


def _numbers(value: Value) -> list[int] | None:
    owner = lazy.definition(value)
    if getattr(owner, "name", "") != "torch.prim.ListConstruct":
        return None
    if any(getattr(element.owner, "name", "") != "torch.constant.int" for element in owner.operands):
        return None
    return [lazy.integer(lazy.definition(element).attributes["value"]) for element in owner.operands]


def _flag(value: Value) -> bool | None:
    owner = lazy.definition(value)
    return (
        lazy.boolean(owner.attributes["value"])
        if getattr(owner, "name", "") == "torch.constant.bool"
        else None
    )


def _list(numbers: Sequence[int]) -> Value:
    torch = mlir.native_torch()
    type = mlir.native_ir().Type.parse("!torch.list<int>")
    return torch.prim_ListConstruct(type, [torch.constant_int(number) for number in numbers])


def _unsupported(operation: Op, circumstance: str) -> UnsupportedOp:
    return UnsupportedOp(
        operation.name,
        f"ceil_mode is not supported {circumstance}: pad the tensor, and use ceil_mode=False",
        mlir.describe_location(operation.location),
    )
