"""Variances of the Torch dialect, decomposed in the precision that PyTorch computes them in.

torch-mlir's own decomposition goes through f64 for every element type. Here f32 and f64 stay what they are,
and f16 and bf16 go through f32, as in PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: Ops that ``decompose_variances`` takes apart; deviations decompose to these.
VARIANCES = frozenset(
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


def decompose_variances(module: Native) -> None:
    """Replace every variance in a module in the backend contract by sums over centered values, in place."""
    found = [op for op in mlir.all_operations(module.operation) if op.name in VARIANCES]
    if not found:
        return
    native = mlir.native_ir()
    with module.context:
        for operation in found:
            with native.InsertionPoint(operation), operation.location:
                _decompose(operation)


def _decompose(operation: Native) -> None:
    build = _Builder(operation)
    x, dims, correction, keep = _arguments(operation)
    source = build.narrow if build.narrow != build.wide else None
    if source:
        x = build.convert(x, build.shape, build.wide)
    axes = _axes(operation, dims, len(build.shape))
    count = build.count(x, axes)
    kept = ["1" if axis in axes else size for axis, size in enumerate(build.shape)]
    gone = [size for axis, size in enumerate(build.shape) if axis not in axes]
    mean = build.quotient(build.sum(x, axes, True, kept), count, kept)
    centered = build.tensor("torch.aten.sub.Tensor", [x, mean, build.integer(1)], build.shape)
    squares = build.tensor("torch.aten.mul.Tensor", [centered, centered], build.shape)
    shape = kept if keep else gone
    variance = build.quotient(build.sum(squares, axes, keep, shape), build.less(count, correction), shape)
    results = [variance]
    if len(operation.results) == 2:
        results.append(mean if keep else build.quotient(build.sum(x, axes, False, gone), count, gone))
    for old, new in zip(operation.results, results, strict=True):
        old.replace_all_uses_with(build.convert(new, shape, source) if source else new)
    operation.erase()


def _arguments(operation: Native) -> tuple[Native, list[int] | None, float, bool]:
    """Operand, axes (``None``: all), correction and whether reduced axes stay."""
    x, *rest = operation.operands
    if operation.name.endswith((".aten.var", ".aten.var_mean")):
        return x, None, float(_constant(operation, rest[0])), False
    dims, correction, keep = (_constant(operation, value) for value in rest)
    # ``unbiased`` is a bool, ``correction`` a number, 1 where it is not given.
    return x, dims, 1.0 if correction is None else float(correction), bool(keep)


def _constant(operation: Native, value: Native) -> Native:
    """The Python value of a constant of the Torch dialect."""
    owner = value.owner
    name = getattr(owner, "name", "")
    if name == "torch.constant.none":
        return None
    if name in ("torch.constant.int", "torch.constant.float", "torch.constant.bool"):
        return owner.attributes["value"].value
    if name == "torch.prim.ListConstruct":
        return [_constant(operation, item) for item in owner.operands]
    where = mlir.describe_location(operation.location)
    raise UnsupportedOp(operation.name, "its axes and its correction must be constants", where)


def _axes(operation: Native, dims: list[int] | None, rank: int) -> list[int]:
    if not dims:
        return list(range(rank))
    axes = sorted({dim % rank if rank and -rank <= dim < rank else -1 for dim in dims})
    if axes[0] < 0 and rank:
        where = mlir.describe_location(operation.location)
        raise UnsupportedOp(operation.name, f"axes {dims} of a tensor of rank {rank}", where)
    return [axis for axis in axes if axis >= 0]


class _Builder:
    """Makes ops at the current insertion point."""

    def __init__(self, operation: Native) -> None:
        self.native = mlir.native_ir()
        match = _TENSOR.fullmatch(str(operation.operands[0].type))
        if match is None or match[2] not in _WIDE:
            where = mlir.describe_location(operation.location)
            reason = (
                f"an operand of type {operation.operands[0].type}; variances are of floats with a known rank"
            )
            raise UnsupportedOp(operation.name, reason, where)
        self.shape = match[1].split(",") if match[1] else []
        self.narrow = match[2]
        self.wide = _WIDE[match[2]]

    def op(self, name: str, operands: Sequence[Native], type: str, **attributes: Native) -> Native:
        kind = self.native.Type.parse(type)
        return self.native.Operation.create(
            name, results=[kind], operands=list(operands), attributes=attributes
        ).result

    def tensor(self, name: str, operands: Sequence[Native], shape: Sequence[str]) -> Native:
        return self.op(name, operands, f"!torch.vtensor<[{','.join(shape)}],{self.wide}>")

    def integer(self, value: int) -> Native:
        attribute = self.native.IntegerAttr.get(self.native.IntegerType.get_signless(64), value)
        return self.op("torch.constant.int", (), "!torch.int", value=attribute)

    def float(self, value: float) -> Native:
        attribute = self.native.FloatAttr.get_f64(value)
        return self.op("torch.constant.float", (), "!torch.float", value=attribute)

    def truth(self, value: bool) -> Native:
        attribute = self.native.IntegerAttr.get(self.native.IntegerType.get_signless(1), int(value))
        return self.op("torch.constant.bool", (), "!torch.bool", value=attribute)

    def none(self) -> Native:
        return self.op("torch.constant.none", (), "!torch.none")

    def convert(self, x: Native, shape: Sequence[str], element: str) -> Native:
        false = self.truth(False)
        operands = [x, self.integer(_CODES[element]), false, false, self.none()]
        return self.op("torch.aten.to.dtype", operands, f"!torch.vtensor<[{','.join(shape)}],{element}>")

    def sum(self, x: Native, axes: Sequence[int], keep: bool, shape: Sequence[str]) -> Native:
        listed = [self.integer(axis) for axis in axes]
        dims = self.op("torch.prim.ListConstruct", listed, "!torch.list<int>")
        operands = [x, dims, self.truth(keep), self.none()]
        return self.tensor("torch.aten.sum.dim_IntList", operands, shape)

    def count(self, x: Native, axes: Sequence[int]) -> Native:
        """How many elements a variance is of: an ``int`` where that is known, else a value."""
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

    def less(self, count: Native, correction: float) -> Native:
        """The divisor of a variance, never negative."""
        if isinstance(count, int):
            return max(0.0, count - correction)
        if correction == 0:
            return count
        left = self.op("torch.aten.Float.Scalar", [count], "!torch.float")
        return self.op("torch.aten.sub.float", [left, self.float(correction)], "!torch.float")

    def quotient(self, x: Native, divisor: Native, shape: Sequence[str]) -> Native:
        if isinstance(divisor, int):
            divisor = self.integer(divisor)
        elif isinstance(divisor, float):
            divisor = self.integer(int(divisor)) if divisor.is_integer() else self.float(divisor)
        return self.tensor("torch.aten.div.Scalar", [x, divisor], shape)
