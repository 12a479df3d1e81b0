"""Pooling whose result is rounded up (``ceil_mode``): torch-mlir pads in front where PyTorch pads behind.

A maximum is pooled of the padded tensor instead. Means are refused: their last windows have divisors of their
own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

_POOL = re.compile(r"torch\.aten\.(max|avg)_pool([123])d(_with_indices)?")
_TENSOR = re.compile(r"!torch\.vtensor<\[([^\]]*)\],(f16|bf16|f32|f64)>")

#: Operand that says whether to round up.
_CEILING = {"max": 5, "avg": 4}


class _Axis(NamedTuple):
    """A window's way along one axis."""

    size: int
    window: int
    stride: int
    padding: int
    dilation: int

    @property
    def behind(self) -> int:
        """What has to be padded behind for the windows that begin inside; below 0 where elements are left."""
        reach = self.dilation * (self.window - 1) + 1
        count = -((reach - self.size - 2 * self.padding) // self.stride) + 1
        if (count - 1) * self.stride >= self.size + self.padding:
            count -= 1
        return (count - 1) * self.stride + reach - self.size - self.padding


def pad_behind(module: Native) -> None:
    """Rewrite poolings that round up, in place. Raises ``UnsupportedOp`` for those that it cannot."""
    with module.context:
        for operation in mlir.all_operations(module.operation):
            match = _POOL.fullmatch(operation.name)
            if match is not None and _flag(operation.operands[_CEILING[match[1]]]) is not False:
                with mlir.native_ir().InsertionPoint(operation), operation.location:
                    _rewrite(operation, match[1])


def _rewrite(operation: Native, kind: str) -> None:
    axes = _axes(operation, kind)
    if axes is None:
        raise _refused(operation, "its sizes are not known")
    if any(axis.behind > axis.padding for axis in axes):
        if kind == "avg":
            raise _refused(operation, "of a mean")
        results = list(operation.results)
        if len(results) > 1 and any(True for _ in results[1].uses):
            raise _refused(operation, "with indices")
        _pad(operation, axes)
    operation.operands[_CEILING[kind]] = _make("torch.constant.bool", "!torch.bool", value="false")


def _pad(operation: Native, axes: Sequence[_Axis]) -> None:
    source = operation.operands[0]
    match = _TENSOR.fullmatch(str(source.type))
    assert match is not None
    sizes = [int(size) for size in match[1].split(",")]
    amounts: list[int] = []
    for axis in reversed(axes):
        amounts += [axis.padding, max(axis.behind, 0)]
    first = len(sizes) - len(axes)
    for d, axis in enumerate(axes):
        sizes[first + d] += axis.padding + max(axis.behind, 0)
    type = f"!torch.vtensor<[{','.join(map(str, sizes))}],{match[2]}>"
    least = _make("torch.constant.float", "!torch.float", value="0xFFF0000000000000 : f64")
    operation.operands[0] = _make("torch.aten.constant_pad_nd", type, source, _list(amounts), least)
    operation.operands[3] = _list([0] * len(axes))


def _axes(operation: Native, kind: str) -> list[_Axis] | None:
    match = _TENSOR.fullmatch(str(operation.operands[0].type))
    lists = [_numbers(operation.operands[index]) for index in (1, 2, 3)]
    dilations = _numbers(operation.operands[4]) if kind == "max" else [1]
    if match is None or "?" in match[1] or dilations is None or None in lists:
        return None
    window, stride, padding = (found or [] for found in lists)
    rank = int(operation.name.partition("_pool")[2][0])
    sizes = [int(size) for size in match[1].split(",")][-rank:]
    parts = [_spread(part, rank) for part in (window, stride or window, padding, dilations)]
    if len(sizes) != rank or any(len(part) != rank for part in parts):
        return None
    return [_Axis(*numbers) for numbers in zip(sizes, *parts, strict=True)]


def _spread(numbers: list[int], rank: int) -> list[int]:
    return numbers * rank if len(numbers) == 1 else numbers


def _numbers(value: Native) -> list[int] | None:
    owner = value.owner
    if getattr(owner, "name", "") != "torch.prim.ListConstruct":
        return None
    if any(getattr(element.owner, "name", "") != "torch.constant.int" for element in owner.operands):
        return None
    return [element.owner.attributes["value"].value for element in owner.operands]


def _flag(value: Native) -> bool | None:
    owner = value.owner
    return owner.attributes["value"].value if getattr(owner, "name", "") == "torch.constant.bool" else None


def _list(numbers: Sequence[int]) -> Native:
    elements = [_make("torch.constant.int", "!torch.int", value=f"{number} : i64") for number in numbers]
    return _make("torch.prim.ListConstruct", "!torch.list<int>", *elements)


def _make(name: str, type: str, *operands: Native, **attributes: str) -> Native:
    native = mlir.native_ir()
    parsed = {key: native.Attribute.parse(text) for key, text in attributes.items()}
    results = [native.Type.parse(type)]
    return native.Operation.create(name, results=results, operands=list(operands), attributes=parsed).result


def _refused(operation: Native, which: str) -> UnsupportedOp:
    return UnsupportedOp(
        operation.name,
        f"it rounds up the number of windows (ceil_mode), {which}: pad the tensor, and round down",
        mlir.describe_location(operation.location),
    )
