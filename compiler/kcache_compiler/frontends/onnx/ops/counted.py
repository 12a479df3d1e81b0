"""Results of sizes that depend on data: a tensor of the largest size, and a count of what is there.

``Value.counted`` names the axes and their counts. What lies behind the count is some element of the right
type and, of indices, within bounds. Few operators take such a value: those here, which keep each element
where it is; others are unsupported, as they would read what lies behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NoReturn

from kcache_compiler.frontends.onnx.builder import Build
from kcache_compiler.frontends.onnx.emitter import Counted, Dims, Value
from kcache_compiler.frontends.onnx.site import Results, Site

#: Operators of one operand, one element at a time.
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
_BINARY = frozenset(
    {
        *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual"),
        *("Less", "LessOrEqual", "Mod", "Mul", "Or", "Pow", "Sub", "Xor"),
    }
)


def chosen(b: Build, mask: Value, *carried: Value) -> tuple[list[Value], Value]:
    """Sort vectors by a mask of the same length, where it is true first, stable.

    Returns them, without any the indices of the mask, and the number of elements that are true, ``i64[]``.
    """
    key = b.select(mask, b.full(0, "i32", mask.dims), b.full(1, "i32", mask.dims))
    values = ordered(b, carried or [b.iota("i64", mask.dims, 0)], key)
    return values, b.reduce("add", b.convert(mask, "i64"), [0])


def coordinates(b: Build, dims: Dims) -> list[Value]:
    """Return for each axis the coordinate of every element in row-major order, vectors of ``i64``."""
    return [b.reshape(b.iota("i64", dims, axis), (math.prod(dims),)) for axis in range(len(dims))]


def ordered(
    b: Build, operands: Sequence[Value], key: Value, direction: str = "LT", axis: int = 0
) -> list[Value]:
    """Sort ``key`` and ``operands`` with it, stable; return the operands."""
    values = [key, *operands]
    names = [b.parameter(value.element, ()) for value in values for _ in range(2)]
    body = b.region(names, lambda: [b.compare(direction, names[0], names[1])])
    kinds = [(value.element, value.dims) for value in values]
    properties = f"dimension = {axis} : i64, is_stable = true"
    return b.emit_many("stablehlo.sort", values, kinds, properties, [body])[1:]


def with_count(value: Value, axis: int, count: Value) -> Value:
    """Return ``value`` with ``count`` elements along ``axis``, an ``i64[]``."""
    return value._replace(counted=(Counted(axis, count),))


def passed_on(n: Site, legalization: Callable[[Site], Results | None]) -> list[Value]:
    """Run an operator on values with counts; raises ``UnsupportedOp`` where it may read behind a count."""
    plain = Site(
        n.b,
        n.name,
        n.op,
        n.version,
        [value and value._replace(counted=()) for value in n.inputs],
        n.attributes,
        n.outputs,
    )
    made = legalization(plain)
    if not isinstance(made, Value):
        refuse(n)
    kept = n[0].from_front and n.op in ("Identity", "Transpose")
    return [made._replace(counted=_axes(n, made), from_front=kept)]


def refuse(n: Site) -> NoReturn:
    """Raise ``UnsupportedOp``."""
    n.unsupported(
        "it reads a tensor whose size depends on data, which only operators do that keep each element where "
        "it is (elementwise ones, Transpose, Gather and GatherND by such indices): make it an output of the "
        "model"
    )


def _axes(n: Site, made: Value) -> tuple[Counted, ...]:
    first = n[0]
    if n.op in _UNARY:
        return first.counted
    if n.op == "Transpose":
        order = n.ints("perm", list(reversed(range(first.rank))))
        return tuple(Counted(order.index(axis), count) for axis, count in first.counted)
    if n.op in ("Gather", "GatherND") and not first.counted:
        start = n.axis(n.int("axis", 0), first.rank) if n.op == "Gather" else 0
        last = n[1].rank - (n.op == "GatherND")
        if not n.int("batch_dims", 0) and all(axis < last for axis, _ in n[1].counted):
            return tuple(Counted(start + axis, count) for axis, count in n[1].counted)
    if n.op in _BINARY:
        return _of_both(n, made)
    refuse(n)


def _of_both(n: Site, made: Value) -> tuple[Counted, ...]:
    """The axes of two operands: where one has a count, the other has the same one, or repeats."""
    counts: dict[int, Value] = {}
    for operand in (n[0], n[1]):
        for axis, count in operand.counted:
            counts.setdefault(axis - operand.rank, count)
    for operand in (n[0], n[1]):
        own = {axis - operand.rank: count for axis, count in operand.counted}
        for axis, count in counts.items():
            same = axis in own and own[axis].name == count.name
            repeats = axis not in own and (-axis > operand.rank or operand.dims[axis] == 1)
            if not (same or repeats):
                refuse(n)
    return tuple(Counted(made.rank + axis, count) for axis, count in sorted(counts.items()))
