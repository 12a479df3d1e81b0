"""Values with data-dependent sizes: a tensor of the largest possible size, and the number of valid elements.

``Value.data_dependent_dims`` names the axes and their sizes. Elements beyond the size are arbitrary, and
indices among them within bounds. Only operators that keep each element in its position accept such a value;
others are unsupported, as they would read the invalid elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NoReturn

from kcache_compiler.frontends.onnx.builder import Builder
from kcache_compiler.frontends.onnx.emitter import DataDependentDim, Dims, Value
from kcache_compiler.frontends.onnx.node import LegalizationResult, OnnxNode

#: Elementwise operators of one operand.
_UNARY = frozenset(
    {
        *(
            "Abs",
            "Acos",
            "Acosh",
            "Asin",
            "Asinh",
            "Atan",
            "Atanh",
            "BitwiseNot",
            "Cast",
            "Ceil",
            "Cos",
            "Cosh",
        ),
        *("Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN"),
        *("LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign"),
        *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu"),
    }
)
#: Elementwise operators of two operands.
_BINARY = frozenset(
    {
        *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual"),
        *("Less", "LessOrEqual", "Mod", "Mul", "Or", "Pow", "Sub", "Xor"),
    }
)


def partition_by_mask(b: Builder, mask: Value, *vectors: Value) -> tuple[list[Value], Value]:
    """Stably partition vectors by a mask of the same length: elements where it is true come first.

    Returns the vectors, or without any the indices of the mask, and the number of true elements, ``i64[]``.
    """
    key = b.select(mask, b.full(0, "i32", mask.dims), b.full(1, "i32", mask.dims))
    values = sort_by_key(b, vectors or [b.iota("i64", mask.dims, 0)], key)
    return values, b.reduce("add", b.convert(mask, "i64"), [0])


def element_coordinates(b: Builder, dims: Dims) -> list[Value]:
    """Return for each axis the coordinates of all elements in row-major order, vectors of ``i64``."""
    return [b.reshape(b.iota("i64", dims, axis), (math.prod(dims),)) for axis in range(len(dims))]


def sort_by_key(
    b: Builder, operands: Sequence[Value], key: Value, direction: str = "LT", axis: int = 0
) -> list[Value]:
    """Stably sort ``key``, and ``operands`` with it; return the operands."""
    values = [key, *operands]
    parameters = [b.parameter(value.element, ()) for value in values for _ in range(2)]
    body = b.region(parameters, lambda: [b.compare(direction, parameters[0], parameters[1])])
    types = [(value.element, value.dims) for value in values]
    properties = f"dimension = {axis} : i64, is_stable = true"
    return b.emit_many("stablehlo.sort", values, types, properties, [body])[1:]


def with_data_dependent_dim(value: Value, axis: int, count: Value) -> Value:
    """Return ``value`` with ``count`` valid elements along ``axis``, an ``i64[]``."""
    return value._replace(data_dependent_dims=(DataDependentDim(axis, count),))


def legalize_data_dependent(
    n: OnnxNode, legalization: Callable[[OnnxNode], LegalizationResult | None]
) -> list[Value]:
    """Legalize an operator on values with data-dependent sizes.

    Raises ``UnsupportedOp`` if it may read invalid elements.
    """
    static_node = OnnxNode(
        n.b,
        n.name,
        n.op,
        n.version,
        [value and value._replace(data_dependent_dims=()) for value in n.inputs],
        n.attributes,
        n.outputs,
    )
    result = legalization(static_node)
    if not isinstance(result, Value):
        reject_data_dependent(n)
    keeps_sign = n[0].non_negative and n.op in ("Identity", "Transpose")
    return [result._replace(data_dependent_dims=_result_dims(n, result), non_negative=keeps_sign)]


def reject_data_dependent(n: OnnxNode) -> NoReturn:
    """Raise ``UnsupportedOp`` for an operator that may read invalid elements."""
    n.unsupported(
        "it reads a tensor with a data-dependent size, which is supported for operators that keep each "
        "element in its position (elementwise ones, Transpose, Gather and GatherND by such indices): make "
        "the "
        "tensor an output of the model"
    )


def _result_dims(n: OnnxNode, result: Value) -> tuple[DataDependentDim, ...]:
    """Return the data-dependent dims of the result of an operator."""
    first = n[0]
    if n.op in _UNARY:
        return first.data_dependent_dims
    if n.op == "Transpose":
        order = n.ints("perm", list(reversed(range(first.rank))))
        return tuple(DataDependentDim(order.index(axis), count) for axis, count in first.data_dependent_dims)
    if n.op in ("Gather", "GatherND") and not first.data_dependent_dims:
        start = n.axis(n.int("axis", 0), first.rank) if n.op == "Gather" else 0
        last = n[1].rank - (n.op == "GatherND")
        if not n.int("batch_dims", 0) and all(axis < last for axis, _ in n[1].data_dependent_dims):
            return tuple(DataDependentDim(start + axis, count) for axis, count in n[1].data_dependent_dims)
    if n.op in _BINARY:
        return _merged_dims(n, result)
    reject_data_dependent(n)


def _merged_dims(n: OnnxNode, result: Value) -> tuple[DataDependentDim, ...]:
    """Return the dims of an elementwise operator: each operand has the same size along one, or broadcasts."""
    counts: dict[int, Value] = {}
    for operand in (n[0], n[1]):
        for axis, count in operand.data_dependent_dims:
            counts.setdefault(axis - operand.rank, count)
    for operand in (n[0], n[1]):
        operand_counts = {axis - operand.rank: count for axis, count in operand.data_dependent_dims}
        for axis, count in counts.items():
            is_same = axis in operand_counts and operand_counts[axis].name == count.name
            is_broadcast = axis not in operand_counts and (-axis > operand.rank or operand.dims[axis] == 1)
            if not (is_same or is_broadcast):
                reject_data_dependent(n)
    return tuple(DataDependentDim(result.rank + axis, count) for axis, count in sorted(counts.items()))
