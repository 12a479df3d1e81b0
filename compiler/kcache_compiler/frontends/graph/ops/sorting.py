"""Sorting and top-k."""

from __future__ import annotations

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, scalar_type
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    FLOATS,
    INTEGERS,
    REALS,
    SIGNED,
    Type,
    Value,
    axis_of,
    require_static,
)


def _sort_together(
    e: Emitter, values: tuple[Value, ...], axis: int, descending: bool, stable: bool
) -> tuple[Value, ...]:
    """Sort values together by the first one along an axis."""
    x = values[0]
    dimension = axis_of(axis, len(x.dims))
    types = [scalar_type(value.dtype) for value in values]
    parameters = ", ".join(f"%l{i}: {type}, %r{i}: {type}" for i, type in enumerate(types))
    comparison_type = "TOTALORDER" if x.dtype in FLOATS else "SIGNED" if x.dtype in SIGNED else "UNSIGNED"
    region = (
        f"^bb0({parameters}):\n"
        f'  %s = "stablehlo.compare"(%l0, %r0) {{comparison_direction = #stablehlo<comparison_direction '
        f"{'GT' if descending else 'LT'}>, compare_type = #stablehlo<comparison_type {comparison_type}>}} : "
        f"({types[0]}, {types[0]}) -> tensor<i1>\n"
        '  "stablehlo.return"(%s) : (tensor<i1>) -> ()'
    )
    attributes = f"dimension = {dimension} : i64, is_stable = {'true' if stable else 'false'}"
    return e.emit_all("sort", values, [value.type for value in values], attributes, region)


def sort(e: Emitter, x: Value, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Value:
    """Sort along an axis."""
    return _sort_together(e, (x,), axis, descending, stable)[0]


def argsort(
    e: Emitter,
    x: Value,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
    dtype: str = "i32",
) -> Value:
    """Return the indices that sort ``x`` along an axis."""
    indices = e.iota(dtype, x.dims, axis_of(axis, len(x.dims)))
    return _sort_together(e, (x, indices), axis, descending, stable)[1]


def top_k(e: Emitter, x: Value, *, k: int) -> tuple[Value, ...]:
    """Return the k largest elements along the last axis, and their indices."""
    size = require_static(x, axis_of(-1, len(x.dims)), "top_k needs its size")
    if not 0 <= k <= size:
        raise InvalidProgram(f"k is {k}, but the last axis of {x} has {size} elements")
    dims = (*x.dims[:-1], k)
    return e.emit_all("chlo.top_k", (x,), (Type(x.dtype, dims), Type("i32", dims)), f"k = {k} : i64")


_ORDERED = ("i1", *REALS)
_SORT = (
    Attribute("axis", "int", "The axis.", -1),
    Attribute("descending", "bool", "Whether to sort in descending order.", False),
    Attribute("stable", "bool", "Whether equal elements keep their order.", True),
)

SORTING = Group(
    "Sorting",
    (
        Op(
            "sort",
            "Elements sorted along an axis; floats by the total order of IEEE 754, so that NaN comes last.",
            (Operand("x", _ORDERED),),
            sort,
            "the shape and dtype of `x`",
            "`stablehlo.sort`",
            _SORT,
        ),
        Op(
            "argsort",
            "Indices that sort x along an axis.",
            (Operand("x", _ORDERED),),
            argsort,
            "the shape of `x` in `dtype`",
            "`stablehlo.sort` of `x` and an `iota`",
            (*_SORT, Attribute("dtype", "dtype", "The dtype of the result, integers.", "i32", INTEGERS)),
        ),
        Op(
            "top_k",
            "The k largest elements along the last axis, in descending order, and their indices.",
            (Operand("x", REALS),),
            top_k,
            "the shape of `x` with `k` as the last size: in the dtype of `x`, and in i32",
            "`chlo.top_k`",
            (Attribute("k", "int", "The number of elements."),),
            ("values", "indices"),
        ),
    ),
)
