"""Reductions along axes: sums and the like, means, indices of extremes, cumulative reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, Number, combiner, integers, scalar_type
from kcache_compiler.frontends.graph.ops import elementwise as el
from kcache_compiler.frontends.graph.size_expression import product
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    BITS,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REALS,
    SIGNED,
    Type,
    Value,
    axes_of,
    axis_of,
    require_static,
)

Axes = tuple[int, ...] | None

#: Kind of reduction -> the StableHLO operation that combines two elements.
COMBINERS = {
    "sum": "add",
    "product": "multiply",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
    "xor": "xor",
}


def identity_element(e: Emitter, kind: str, dtype: str) -> Value:
    """Return the scalar that does not change an element when it is combined with it."""
    match kind:
        case "max" | "min":
            return e.scalar(dtype, _extreme(dtype, lowest=kind == "max"))
        case "product":
            return e.scalar(dtype, 1)
        case "and":
            return e.scalar(dtype, _all_ones(dtype))
        case _:
            return e.scalar(dtype, 0)


def _extreme(dtype: str, lowest: bool) -> Number:
    if dtype in FLOATS:
        return float("-inf") if lowest else float("inf")
    if dtype == "i1":
        return not lowest
    bits = int(dtype.lstrip("ui"))
    if dtype in SIGNED:
        return -(1 << bits - 1) if lowest else (1 << bits - 1) - 1
    return 0 if lowest else (1 << bits) - 1


def _all_ones(dtype: str) -> Number:
    if dtype == "i1":
        return True
    return -1 if dtype in SIGNED else (1 << int(dtype.lstrip("ui"))) - 1


def reduced_axes(x: Value, axes: Axes) -> tuple[int, ...]:
    """Return ascending axes counted from 0; all axes for None."""
    return tuple(range(len(x.dims))) if axes is None else tuple(sorted(axes_of(axes, len(x.dims))))


def restore_axes(e: Emitter, reduced: Value, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """Return a reduced value, with axes of size 1 for the reduced ones if ``keepdims``."""
    if not keepdims or not axes:
        return reduced
    return e.reshape(reduced, tuple(1 if axis in axes else size for axis, size in enumerate(x.dims)))


def broadcast_reduced(e: Emitter, reduced: Value, x: Value, axes: Sequence[int]) -> Value:
    """Broadcast a reduced value along the reduced axes, to the shape of ``x``."""
    return e.broadcast_in_dim(reduced, x.dims, [axis for axis in range(len(x.dims)) if axis not in axes])


def reduce_(e: Emitter, x: Value, kind: str, axes: Axes = None, keepdims: bool = False) -> Value:
    """Emit a reduction of the given kind."""
    reduced = reduced_axes(x, axes)
    if not reduced:
        return x
    type = Type(x.dtype, tuple(size for axis, size in enumerate(x.dims) if axis not in reduced))
    operands = (x, identity_element(e, kind, x.dtype))
    attribute = f"dimensions = {integers(reduced)}"
    region = combiner(COMBINERS[kind], x.dtype)
    return restore_axes(e, e.emit("reduce", operands, type, attribute, region), x, reduced, keepdims)


def reduction(kind: str) -> Callable[..., Value]:
    """Return the builder of one kind of reduction."""

    def build(e: Emitter, x: Value, *, axes: Axes = None, keepdims: bool = False) -> Value:
        return reduce_(e, x, kind, axes, keepdims)

    return build


def count(e: Emitter, x: Value, axes: Sequence[int], correction: int = 0) -> Value:
    """Return the number of reduced elements minus ``correction``, as a scalar of the dtype of ``x``."""
    total = product(tuple(x.dims[axis] for axis in axes))
    if e.is_static((total,)):
        return e.scalar(x.dtype, e.sample(total) - correction)
    number = el.convert(e, e.size(total), dtype=x.dtype)
    return number if not correction else el.subtract(e, number, e.scalar(x.dtype, correction))


def mean(e: Emitter, x: Value, *, axes: Axes = None, keepdims: bool = False) -> Value:
    """Return the sum divided by the number of elements."""
    reduced = reduced_axes(x, axes)
    total = reduce_(e, x, "sum", reduced)
    return restore_axes(e, el.divide(e, total, count(e, x, reduced)), x, reduced, keepdims)


def variance(
    e: Emitter, x: Value, *, axes: Axes = None, keepdims: bool = False, correction: int = 0
) -> Value:
    """Return the mean square of the deviation from the mean."""
    reduced = reduced_axes(x, axes)
    centered = el.subtract(e, x, broadcast_reduced(e, mean(e, x, axes=reduced), x, reduced))
    total = reduce_(e, el.square(e, centered), "sum", reduced)
    return restore_axes(e, el.divide(e, total, count(e, x, reduced, correction)), x, reduced, keepdims)


def logsumexp(e: Emitter, x: Value, *, axes: Axes = None, keepdims: bool = False) -> Value:
    """Return log(sum(exp(x))), shifted by the maximum if that is finite."""
    reduced = reduced_axes(x, axes)
    maximum = reduce_(e, x, "max", reduced)
    maximum = el.select(e, el.predicate("is_finite")(e, maximum), maximum, e.like(maximum, 0))
    total = reduce_(
        e, el.exp(e, el.subtract(e, x, broadcast_reduced(e, maximum, x, reduced))), "sum", reduced
    )
    return restore_axes(e, el.add(e, el.log(e, total), maximum), x, reduced, keepdims)


def extreme_index(e: Emitter, x: Value, largest: bool, axis: int, keepdims: bool, dtype: str) -> Value:
    """Return the index of the first NaN, otherwise of the first largest or smallest element."""
    dimension = axis_of(axis, len(x.dims))
    if x.dims[dimension] == 0:
        raise InvalidProgram(
            f"axis {dimension} of {x} is empty: it has no {'largest' if largest else 'smallest'} element"
        )
    indices = e.iota(dtype, x.dims, dimension)
    dims = tuple(size for a, size in enumerate(x.dims) if a != dimension)
    operands = (x, indices, identity_element(e, "max" if largest else "min", x.dtype), e.scalar(dtype, 0))
    region = _index_region(x.dtype, dtype, largest)
    results = (Type(x.dtype, dims), Type(dtype, dims))
    index = e.emit_all("reduce", operands, results, f"dimensions = {integers((dimension,))}", region)[1]
    return restore_axes(e, index, x, (dimension,), keepdims)


def _index_region(dtype: str, index: str, largest: bool) -> str:
    """Return the combiner of (value, index) pairs, in the form of JAX's argmax and argmin."""
    value_type, index_type, boolean = (scalar_type(name) for name in (dtype, index, "i1"))
    comparison_type = "FLOAT" if dtype in FLOATS else "SIGNED" if dtype in SIGNED else "UNSIGNED"
    index_comparison = "SIGNED" if index in SIGNED else "UNSIGNED"

    def compare(
        name: str, left: str, right: str, direction: str, comparison_type: str, operand_type: str
    ) -> str:
        attributes = (
            f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
            f"compare_type = #stablehlo<comparison_type {comparison_type}>"
        )
        types = f"({operand_type}, {operand_type}) -> {boolean}"
        return f'  {name} = "stablehlo.compare"({left}, {right}) {{{attributes}}} : {types}'

    def logic(name: str, op: str, left: str, right: str) -> str:
        return f'  {name} = "stablehlo.{op}"({left}, {right}) : ({boolean}, {boolean}) -> {boolean}'

    def select(name: str, on: str, left: str, right: str, operand_type: str) -> str:
        types = f"({boolean}, {operand_type}, {operand_type}) -> {operand_type}"
        return f'  {name} = "stablehlo.select"({on}, {left}, {right}) : {types}'

    lines = [
        f"^bb0(%lv: {value_type}, %li: {index_type}, %rv: {value_type}, %ri: {index_type}):",
        compare("%better", "%lv", "%rv", "GT" if largest else "LT", comparison_type, value_type),
        compare("%nan", "%lv", "%lv", "NE", comparison_type, value_type),
        logic("%first", "or", "%better", "%nan"),
        compare("%equal", "%lv", "%rv", "EQ", comparison_type, value_type),
        compare("%before", "%li", "%ri", "LT", index_comparison, index_type),
        logic("%tie", "and", "%equal", "%before"),
        logic("%left", "or", "%first", "%tie"),
        select("%v", "%first", "%lv", "%rv", value_type),
        select("%i", "%left", "%li", "%ri", index_type),
        f'  "stablehlo.return"(%v, %i) : ({value_type}, {index_type}) -> ()',
    ]
    return "\n".join(lines)


def _index_builder(largest: bool) -> Callable[..., Value]:
    def build(e: Emitter, x: Value, *, axis: int = -1, keepdims: bool = False, dtype: str = "i32") -> Value:
        return extreme_index(e, x, largest, axis, keepdims, dtype)

    return build


def cumulative(kind: str) -> Callable[..., Value]:
    """Return the builder of an operation that combines each element with all before it."""

    def build(e: Emitter, x: Value, *, axis: int = -1, reverse: bool = False) -> Value:
        dimension = axis_of(axis, len(x.dims))
        length = require_static(x, dimension, "a cumulative reduction needs its size")
        if length == 0:
            return x
        window = [length if a == dimension else 1 for a in range(len(x.dims))]
        leading = [length - 1 if a == dimension else 0 for a in range(len(x.dims))]
        zeros = [0] * len(x.dims)
        low, high = (zeros, leading) if reverse else (leading, zeros)
        rows = ", ".join(f"[{a}, {b}]" for a, b in zip(low, high, strict=True))
        attributes = (
            f"window_dimensions = {integers(window)}, padding = dense<[{rows}]> : tensor<{len(window)}x2xi64>"
        )
        operands = (x, identity_element(e, kind, x.dtype))
        return e.emit("reduce_window", operands, x.type, attributes, combiner(COMBINERS[kind], x.dtype))

    return build


_AXES = Attribute("axes", "ints", "The axes, each at most once. Default: all.", None)
_KEEP = Attribute("keepdims", "bool", "Whether reduced axes are kept with size 1.", False)
_REDUCED = "the shape of `x` without the axes, which `keepdims` keeps with size 1; the dtype of `x`"


def _reduction_op(kind: str, doc: str, dtypes: tuple[str, ...]) -> Op:
    return Op(
        f"reduce_{kind}",
        doc,
        (Operand("x", dtypes),),
        reduction(kind),
        _REDUCED,
        f"`stablehlo.reduce` with `stablehlo.{COMBINERS[kind]}`, from its identity element",
        (_AXES, _KEEP),
    )


def _mean_op(name: str, doc: str, build: Callable[..., Value], formula: str, *attributes: Attribute) -> Op:
    dtypes = FLOATS if name != "mean" else (*FLOATS, *COMPLEX)
    return Op(
        name,
        doc,
        (Operand("x", dtypes),),
        build,
        _REDUCED,
        formula,
        (_AXES, _KEEP, *attributes),
        composite=True,
    )


def _index_op(name: str, doc: str, largest: bool) -> Op:
    return Op(
        name,
        doc,
        (Operand("x", ("i1", *REALS)),),
        _index_builder(largest),
        "the shape of `x` without the axis, which `keepdims` keeps with size 1, in `dtype`",
        "`stablehlo.reduce` of `x` and an `iota` with the combiner that JAX uses",
        (
            Attribute("axis", "int", "The axis, which must not be empty.", -1),
            _KEEP,
            Attribute("dtype", "dtype", "The dtype of the result, integers.", "i32", INTEGERS),
        ),
    )


def _cumulative_op(name: str, kind: str, doc: str, dtypes: tuple[str, ...]) -> Op:
    return Op(
        name,
        doc,
        (Operand("x", dtypes),),
        cumulative(kind),
        "the shape and dtype of `x`; the axis is static",
        f"`stablehlo.reduce_window` with `stablehlo.{COMBINERS[kind]}` over a window of the size of the axis",
        (
            Attribute("axis", "int", "The axis.", -1),
            Attribute("reverse", "bool", "Whether to combine from the end.", False),
        ),
    )


REDUCTIONS = Group(
    "Reductions",
    (
        _reduction_op("sum", "Sum.", NUMBERS),
        _reduction_op("product", "Product.", NUMBERS),
        _reduction_op("max", "Maximum; NaN if there is one.", ("i1", *REALS)),
        _reduction_op("min", "Minimum; NaN if there is one.", ("i1", *REALS)),
        _reduction_op("and", "Bitwise and; logical and of i1.", BITS),
        _reduction_op("or", "Bitwise or; logical or of i1.", BITS),
        _reduction_op("xor", "Bitwise exclusive or.", BITS),
        _mean_op("mean", "Mean.", mean, "`reduce_sum(x) / n`"),
        _mean_op(
            "variance",
            "Mean square of the deviation from the mean.",
            variance,
            "`reduce_sum(square(x - mean(x))) / (n - correction)`",
            Attribute("correction", "int", "0 for a population, 1 for a sample.", 0),
        ),
        _mean_op(
            "logsumexp",
            "Logarithm of the sum of exp(x), without overflow.",
            logsumexp,
            "`log(reduce_sum(exp(x - m))) + m`, with `m` the maximum if it is finite, otherwise 0",
        ),
        _index_op(
            "argmax", "Index of the largest element: of the first NaN, otherwise the first of equals.", True
        ),
        _index_op(
            "argmin", "Index of the smallest element: of the first NaN, otherwise the first of equals.", False
        ),
        _cumulative_op("cumsum", "sum", "Inclusive cumulative sum.", NUMBERS),
        _cumulative_op("cumprod", "product", "Inclusive cumulative product.", NUMBERS),
        _cumulative_op("cummax", "max", "Inclusive cumulative maximum.", REALS),
        _cumulative_op("cummin", "min", "Inclusive cumulative minimum.", REALS),
    ),
)
