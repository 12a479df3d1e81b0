"""Decomposes variances of the Torch dialect, in the precision of PyTorch.

torch-mlir's own decomposition computes in f64 for every element type. Here f32 and f64 keep their type, and
f16 and bf16 use f32, as in PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Module, Op, Type, Value

#: Ops that ``decompose_variances`` decomposes; standard deviations decompose to these.
VARIANCE_OPS = frozenset(
    {
        "torch.aten.var",
        "torch.aten.var.dim",
        "torch.aten.var.correction",
        "torch.aten.var_mean",
        "torch.aten.var_mean.dim",
        "torch.aten.var_mean.correction",
    }
)
_TENSOR = re.compile(r"!torch\.vtensor<\[([^\]]*)\],(\w+)>")
_CODES = {"f32": 6, "f64": 7, "f16": 5, "bf16": 15}
_WIDE = {"f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64"}


def decompose_variances(module: Module) -> None:
    """Replace every variance in a module in the backend contract by sums of centered values, in place."""
    variances = [op for op in mlir.all_operations(module.operation) if op.name in VARIANCE_OPS]
    if not variances:
        return
    native = mlir.native_ir()
    with module.context:
        for operation in variances:
            with native.InsertionPoint(operation), operation.location:
                _decompose(operation)


def _decompose(operation: Op) -> None:
    """Replace a variance by the mean of squared differences from the mean.

    Elements of 16 bits are computed in the wide type of the builder. A second result is the mean.
    """
    builder = _VarianceBuilder(operation)
    x, dims, correction, keep = _arguments(operation)
    narrow_element = builder.narrow if builder.narrow != builder.wide else None
    if narrow_element:
        x = builder.convert(x, builder.shape, builder.wide)
    axes = _axes(operation, dims, len(builder.shape))
    count = builder.count(x, axes)
    kept_shape = ["1" if axis in axes else size for axis, size in enumerate(builder.shape)]
    reduced_shape = [size for axis, size in enumerate(builder.shape) if axis not in axes]
    mean = builder.quotient(builder.sum(x, axes, True, kept_shape), count, kept_shape)
    centered = builder.torch.aten_sub_Tensor(
        builder.type(builder.shape), x, mean, builder.torch.constant_int(1)
    )
    squares = builder.torch.aten_mul_Tensor(builder.type(builder.shape), centered, centered)
    shape = kept_shape if keep else reduced_shape
    variance = builder.quotient(
        builder.sum(squares, axes, keep, shape), builder.divisor(count, correction), shape
    )
    results = [variance]
    if len(operation.results) == 2:
        results.append(
            mean
            if keep
            else builder.quotient(builder.sum(x, axes, False, reduced_shape), count, reduced_shape)
        )
    for old, new in zip(operation.results, results, strict=True):
        old.replace_all_uses_with(builder.convert(new, shape, narrow_element) if narrow_element else new)
    operation.erase()


def _arguments(operation: Op) -> tuple[Value, list[int] | None, float, bool]:
    """Return the operand, the axes (``None``: all), the correction, and ``keepdim``."""
    x, *parameters = operation.operands
    if operation.name.endswith((".aten.var", ".aten.var_mean")):
        return x, None, float(_constant(operation, parameters[0])), False
    dims, correction, keep = (_constant(operation, value) for value in parameters)
    # ``unbiased`` is a bool, ``correction`` a number, by default 1.
    return x, dims, 1.0 if correction is None else float(correction), bool(keep)


def _constant(operation: Op, value: Value) -> Any:
    """Return the Python value of a constant of the Torch dialect."""
    owner = lazy.definition(value)
    name = getattr(owner, "name", "")
    if name == "torch.constant.none":
        return None
    if name in ("torch.constant.int", "torch.constant.float", "torch.constant.bool"):
        return lazy.number(owner.attributes["value"])
    if name == "torch.prim.ListConstruct":
        return [_constant(operation, item) for item in owner.operands]
    location = mlir.describe_location(operation.location)
    raise UnsupportedOp(operation.name, "its axes and its correction must be constants", location)


def _axes(operation: Op, dims: list[int] | None, rank: int) -> list[int]:
    if not dims:
        return list(range(rank))
    axes = sorted({dim % rank if rank and -rank <= dim < rank else -1 for dim in dims})
    if axes[0] < 0 and rank:
        location = mlir.describe_location(operation.location)
        raise UnsupportedOp(
            operation.name, f"axes {dims} are out of range for a tensor of rank {rank}", location
        )
    return [axis for axis in axes if axis >= 0]


class _VarianceBuilder:
    """Creates ops of the Torch dialect at the current insertion point."""

    def __init__(self, operation: Op) -> None:
        self.native = mlir.native_ir()
        self.torch = mlir.native_torch()
        match = _TENSOR.fullmatch(str(operation.operands[0].type))
        if match is None or match[2] not in _WIDE:
            location = mlir.describe_location(operation.location)
            reason = f"an operand of type {operation.operands[0].type}: variances need floats and a rank"
            raise UnsupportedOp(operation.name, reason, location)
        self.shape = match[1].split(",") if match[1] else []
        self.narrow = match[2]
        self.wide = _WIDE[match[2]]

    def type(self, shape: Sequence[str], element: str = "") -> Type:
        """Return the type of a tensor, by default of the elements that are computed with."""
        return self.native.Type.parse(f"!torch.vtensor<[{','.join(shape)}],{element or self.wide}>")

    def convert(self, x: Value, shape: Sequence[str], element: str) -> Value:
        false, code = self.torch.constant_bool(False), self.torch.constant_int(_CODES[element])
        none = self.torch.constant_none()
        return self.torch.aten_to_dtype(self.type(shape, element), x, code, false, false, none)

    def sum(self, x: Value, axes: Sequence[int], keep: bool, shape: Sequence[str]) -> Value:
        torch, integers = self.torch, self.native.Type.parse("!torch.list<int>")
        dims = torch.prim_ListConstruct(integers, [torch.constant_int(axis) for axis in axes])
        keepdim, dtype = torch.constant_bool(keep), torch.constant_none()
        return torch.aten_sum_dim_IntList(self.type(shape), x, dims, keepdim, dtype)

    def count(self, x: Value, axes: Sequence[int]) -> Value | int:
        """Return the number of reduced elements: an ``int`` if it is static, otherwise a value."""
        sizes = [self.shape[axis] for axis in axes]
        if "?" not in sizes:
            total = 1
            for size in sizes:
                total *= int(size)
            return total
        factors = [self.torch.aten_size_int(x, self.torch.constant_int(axis)) for axis in axes]
        product = factors[0]
        for factor in factors[1:]:
            product = self.torch.aten_mul_int(product, factor)
        return product

    def divisor(self, count: Value | int, correction: float) -> Value | float:
        """Return the divisor of a variance, never negative if it is static."""
        if isinstance(count, int):
            return max(0.0, count - correction)
        if correction == 0:
            return count
        float_count = self.torch.aten_Float_Scalar(count)
        return self.torch.aten_sub_float(float_count, self.torch.constant_float(correction))

    def quotient(self, x: Value, divisor: Value | float, shape: Sequence[str]) -> Value:
        if isinstance(divisor, int):
            divisor = self.torch.constant_int(divisor)
        elif isinstance(divisor, float):
            whole = divisor.is_integer()
            divisor = self.torch.constant_int(int(divisor)) if whole else self.torch.constant_float(divisor)
        return self.torch.aten_div_Scalar(self.type(shape), x, divisor)
