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
    from kcache_compiler.mlir.types import Attribute, Module, Op, Value

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
    centered = builder.tensor("torch.aten.sub.Tensor", [x, mean, builder.integer(1)], builder.shape)
    squares = builder.tensor("torch.aten.mul.Tensor", [centered, centered], builder.shape)
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
        match = _TENSOR.fullmatch(str(operation.operands[0].type))
        if match is None or match[2] not in _WIDE:
            location = mlir.describe_location(operation.location)
            reason = f"an operand of type {operation.operands[0].type}: variances need floats and a rank"
            raise UnsupportedOp(operation.name, reason, location)
        self.shape = match[1].split(",") if match[1] else []
        self.narrow = match[2]
        self.wide = _WIDE[match[2]]

    def op(self, name: str, operands: Sequence[Value], type: str, **attributes: Attribute) -> Value:
        parsed_type = self.native.Type.parse(type)
        return self.native.Operation.create(
            name, results=[parsed_type], operands=list(operands), attributes=attributes
        ).result

    def tensor(self, name: str, operands: Sequence[Value], shape: Sequence[str]) -> Value:
        return self.op(name, operands, f"!torch.vtensor<[{','.join(shape)}],{self.wide}>")

    def integer(self, value: int) -> Value:
        attribute = self.native.IntegerAttr.get(self.native.IntegerType.get_signless(64), value)
        return self.op("torch.constant.int", (), "!torch.int", value=attribute)

    def float(self, value: float) -> Value:
        attribute = self.native.FloatAttr.get_f64(value)
        return self.op("torch.constant.float", (), "!torch.float", value=attribute)

    def boolean(self, value: bool) -> Value:
        attribute = self.native.IntegerAttr.get(self.native.IntegerType.get_signless(1), int(value))
        return self.op("torch.constant.bool", (), "!torch.bool", value=attribute)

    def none(self) -> Value:
        return self.op("torch.constant.none", (), "!torch.none")

    def convert(self, x: Value, shape: Sequence[str], element: str) -> Value:
        false = self.boolean(False)
        operands = [x, self.integer(_CODES[element]), false, false, self.none()]
        return self.op("torch.aten.to.dtype", operands, f"!torch.vtensor<[{','.join(shape)}],{element}>")

    def sum(self, x: Value, axes: Sequence[int], keep: bool, shape: Sequence[str]) -> Value:
        axis_constants = [self.integer(axis) for axis in axes]
        dims = self.op("torch.prim.ListConstruct", axis_constants, "!torch.list<int>")
        operands = [x, dims, self.boolean(keep), self.none()]
        return self.tensor("torch.aten.sum.dim_IntList", operands, shape)

    def count(self, x: Value, axes: Sequence[int]) -> Value | int:
        """Return the number of reduced elements: an ``int`` if it is static, otherwise a value."""
        sizes = [self.shape[axis] for axis in axes]
        if "?" not in sizes:
            total = 1
            for size in sizes:
                total *= int(size)
            return total
        factors = [self.op("torch.aten.size.int", [x, self.integer(axis)], "!torch.int") for axis in axes]
        product = factors[0]
        for factor in factors[1:]:
            product = self.op("torch.aten.mul.int", [product, factor], "!torch.int")
        return product

    def divisor(self, count: Value | int, correction: float) -> Value | float:
        """Return the divisor of a variance, never negative if it is static."""
        if isinstance(count, int):
            return max(0.0, count - correction)
        if correction == 0:
            return count
        float_count = self.op("torch.aten.Float.Scalar", [count], "!torch.float")
        return self.op("torch.aten.sub.float", [float_count, self.float(correction)], "!torch.float")

    def quotient(self, x: Value, divisor: Value | float, shape: Sequence[str]) -> Value:
        if isinstance(divisor, int):
            divisor = self.integer(divisor)
        elif isinstance(divisor, float):
            divisor = self.integer(int(divisor)) if divisor.is_integer() else self.float(divisor)
        return self.tensor("torch.aten.div.Scalar", [x, divisor], shape)
