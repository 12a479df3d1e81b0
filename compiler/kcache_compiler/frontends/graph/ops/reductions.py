"""Operations along axes: sums and their like, averages, places of extremes, running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, Number, combiner, integers, scalar_type
from kcache_compiler.frontends.graph.extent import product
from kcache_compiler.frontends.graph.ops import elementwise as el
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

#: Kind -> the StableHLO operation that combines two elements.
COMBINERS = {
    "sum": "add",
    "product": "multiply",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
    "xor": "xor",
}


def neutral(e: Emitter, kind: str, dtype: str) -> Value:
    """The scalar that changes nothing when it is combined."""
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
    """Axes from 0, rising; all where none are named."""
    return tuple(range(len(x.dims))) if axes is None else tuple(sorted(axes_of(axes, len(x.dims))))


def kept(e: Emitter, reduced: Value, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """A reduced value, with axes of size 1 in place of those that are gone where ``keepdims``."""
    if not keepdims or not axes:
        return reduced
    return e.reshape(reduced, tuple(1 if axis in axes else size for axis, size in enumerate(x.dims)))


def spread(e: Emitter, reduced: Value, x: Value, axes: Sequence[int]) -> Value:
    """A reduced value, repeated along the axes that are gone."""
    return e.broadcast_in_dim(reduced, x.dims, [axis for axis in range(len(x.dims)) if axis not in axes])


def reduce_(e: Emitter, x: Value, kind: str, axes: Axes = None, keepdims: bool = False) -> Value:
    """Any kind of reduction."""
    along = reduced_axes(x, axes)
    if not along:
        return x
    type = Type(x.dtype, tuple(size for axis, size in enumerate(x.dims) if axis not in along))
    operands = (x, neutral(e, kind, x.dtype))
    attribute = f"dimensions = {integers(along)}"
    region = combiner(COMBINERS[kind], x.dtype)
    return kept(e, e.emit("reduce", operands, type, attribute, region), x, along, keepdims)


def reduction(kind: str) -> Callable[..., Value]:
    """The builder of one kind."""

    def build(e: Emitter, x: Value, *, axes: Axes = None, keepdims: bool = False) -> Value:
        return reduce_(e, x, kind, axes, keepdims)

    return build


def count(e: Emitter, x: Value, axes: Sequence[int], less: int = 0) -> Value:
    """How many elements a reduction combines, minus ``less``, as a scalar of the dtype of ``x``."""
    total = product(tuple(x.dims[axis] for axis in axes))
    if e.fixed((total,)):
        return e.scalar(x.dtype, e.sample(total) - less)
    found = el.convert(e, e.size(total), dtype=x.dtype)
    return found if not less else el.subtract(e, found, e.scalar(x.dtype, less))


def mean(e: Emitter, x: Value, *, axes: Axes = None, keepdims: bool = False) -> Value:
    """The sum, divided by the number of elements."""
    along = reduced_axes(x, axes)
    total = reduce_(e, x, "sum", along)
    return kept(e, el.divide(e, total, count(e, x, along)), x, along, keepdims)


def variance(
    e: Emitter, x: Value, *, axes: Axes = None, keepdims: bool = False, correction: int = 0
) -> Value:
    """The mean square of the distance from the mean."""
    along = reduced_axes(x, axes)
    centered = el.subtract(e, x, spread(e, mean(e, x, axes=along), x, along))
    total = reduce_(e, el.square(e, centered), "sum", along)
    return kept(e, el.divide(e, total, count(e, x, along, correction)), x, along, keepdims)


def logsumexp(e: Emitter, x: Value, *, axes: Axes = None, keepdims: bool = False) -> Value:
    """log(sum(exp(x))), shifted by the maximum where that is finite."""
    along = reduced_axes(x, axes)
    top = reduce_(e, x, "max", along)
    top = el.select(e, el.predicate("is_finite")(e, top), top, e.like(top, 0))
    total = reduce_(e, el.exp(e, el.subtract(e, x, spread(e, top, x, along))), "sum", along)
    return kept(e, el.add(e, el.log(e, total), top), x, along, keepdims)


def extreme_index(e: Emitter, x: Value, largest: bool, axis: int, keepdims: bool, dtype: str) -> Value:
    """Where the largest or smallest element is: the first NaN, else the first of equals."""
    at = axis_of(axis, len(x.dims))
    if x.dims[at] == 0:
        raise InvalidProgram(
            f"axis {at} of {x} is empty: no element is the {'largest' if largest else 'smallest'}"
        )
    places = e.iota(dtype, x.dims, at)
    rest = tuple(size for a, size in enumerate(x.dims) if a != at)
    operands = (x, places, neutral(e, "max" if largest else "min", x.dtype), e.scalar(dtype, 0))
    region = _index_region(x.dtype, dtype, largest)
    results = (Type(x.dtype, rest), Type(dtype, rest))
    found = e.emit_all("reduce", operands, results, f"dimensions = {integers((at,))}", region)[1]
    return kept(e, found, x, (at,), keepdims)


def _index_region(dtype: str, index: str, largest: bool) -> str:
    """The combiner of JAX's argmax and argmin."""
    value, place, bit = (scalar_type(name) for name in (dtype, index, "i1"))
    kind = "FLOAT" if dtype in FLOATS else "SIGNED" if dtype in SIGNED else "UNSIGNED"
    order = "SIGNED" if index in SIGNED else "UNSIGNED"

    def compare(name: str, left: str, right: str, direction: str, kind: str, type: str) -> str:
        attributes = (
            f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
            f"compare_type = #stablehlo<comparison_type {kind}>"
        )
        return f'  {name} = "stablehlo.compare"({left}, {right}) {{{attributes}}} : ({type}, {type}) -> {bit}'

    def logic(name: str, op: str, left: str, right: str) -> str:
        return f'  {name} = "stablehlo.{op}"({left}, {right}) : ({bit}, {bit}) -> {bit}'

    def choose(name: str, on: str, left: str, right: str, type: str) -> str:
        return f'  {name} = "stablehlo.select"({on}, {left}, {right}) : ({bit}, {type}, {type}) -> {type}'

    lines = [
        f"^bb0(%lv: {value}, %li: {place}, %rv: {value}, %ri: {place}):",
        compare("%better", "%lv", "%rv", "GT" if largest else "LT", kind, value),
        compare("%nan", "%lv", "%lv", "NE", kind, value),
        logic("%first", "or", "%better", "%nan"),
        compare("%equal", "%lv", "%rv", "EQ", kind, value),
        compare("%before", "%li", "%ri", "LT", order, place),
        logic("%tie", "and", "%equal", "%before"),
        logic("%left", "or", "%first", "%tie"),
        choose("%v", "%first", "%lv", "%rv", value),
        choose("%i", "%left", "%li", "%ri", place),
        f'  "stablehlo.return"(%v, %i) : ({value}, {place}) -> ()',
    ]
    return "\n".join(lines)


def _place(largest: bool) -> Callable[..., Value]:
    def build(e: Emitter, x: Value, *, axis: int = -1, keepdims: bool = False, dtype: str = "i32") -> Value:
        return extreme_index(e, x, largest, axis, keepdims, dtype)

    return build


def cumulative(kind: str) -> Callable[..., Value]:
    """The builder of what combines each element with all before it."""

    def build(e: Emitter, x: Value, *, axis: int = -1, reverse: bool = False) -> Value:
        at = axis_of(axis, len(x.dims))
        length = require_static(x, at, "a running reduction has no form for it")
        if length == 0:
            return x
        window = [length if a == at else 1 for a in range(len(x.dims))]
        before = [length - 1 if a == at else 0 for a in range(len(x.dims))]
        none = [0] * len(x.dims)
        low, high = (none, before) if reverse else (before, none)
        rows = ", ".join(f"[{a}, {b}]" for a, b in zip(low, high, strict=True))
        attributes = (
            f"window_dimensions = {integers(window)}, padding = dense<[{rows}]> : tensor<{len(window)}x2xi64>"
        )
        operands = (x, neutral(e, kind, x.dtype))
        return e.emit("reduce_window", operands, x.type, attributes, combiner(COMBINERS[kind], x.dtype))

    return build


_AXES = Attribute("axes", "ints", "The axes, none twice. Default: all.", None)
_KEEP = Attribute("keepdims", "bool", "Whether axes of size 1 take the place of those that are gone.", False)
_GONE = "the shape of `x` without the axes, or with `keepdims` with axes of size 1; the dtype of `x`"


def _reduction(kind: str, doc: str, dtypes: tuple[str, ...]) -> Op:
    return Op(
        f"reduce_{kind}",
        doc,
        (Operand("x", dtypes),),
        reduction(kind),
        _GONE,
        f"`stablehlo.reduce` with `stablehlo.{COMBINERS[kind]}`, from its neutral element",
        (_AXES, _KEEP),
    )


def _averaged(name: str, doc: str, build: Callable[..., Value], formula: str, *more: Attribute) -> Op:
    dtypes = FLOATS if name != "mean" else (*FLOATS, *COMPLEX)
    return Op(
        name, doc, (Operand("x", dtypes),), build, _GONE, formula, (_AXES, _KEEP, *more), composite=True
    )


def _argument(name: str, doc: str, largest: bool) -> Op:
    return Op(
        name,
        doc,
        (Operand("x", ("i1", *REALS)),),
        _place(largest),
        "the shape of `x` without the axis, or with `keepdims` with an axis of size 1, in `dtype`",
        "`stablehlo.reduce` of `x` and an `iota` with the combiner that JAX uses",
        (
            Attribute("axis", "int", "The axis; not an empty one.", -1),
            _KEEP,
            Attribute("dtype", "dtype", "The dtype of the result, integers.", "i32", INTEGERS),
        ),
    )


def _running(name: str, kind: str, doc: str, dtypes: tuple[str, ...]) -> Op:
    return Op(
        name,
        doc,
        (Operand("x", dtypes),),
        cumulative(kind),
        "the shape and dtype of `x`; the axis is fixed",
        f"`stablehlo.reduce_window` with `stablehlo.{COMBINERS[kind]}` over a window of the size of the axis",
        (
            Attribute("axis", "int", "The axis to run along.", -1),
            Attribute("reverse", "bool", "From the end.", False),
        ),
    )


REDUCTIONS = Group(
    "Reductions",
    (
        _reduction("sum", "Sum.", NUMBERS),
        _reduction("product", "Product.", NUMBERS),
        _reduction("max", "Maximum; NaN where there is one.", ("i1", *REALS)),
        _reduction("min", "Minimum; NaN where there is one.", ("i1", *REALS)),
        _reduction("and", "Bitwise and; of i1 whether all are true.", BITS),
        _reduction("or", "Bitwise or; of i1 whether any is true.", BITS),
        _reduction("xor", "Bitwise exclusive or.", BITS),
        _averaged("mean", "Mean.", mean, "`reduce_sum(x) / n`"),
        _averaged(
            "variance",
            "Mean square of the distance from the mean.",
            variance,
            "`reduce_sum(square(x - mean(x))) / (n - correction)`",
            Attribute("correction", "int", "0 of a population, 1 of a sample.", 0),
        ),
        _averaged(
            "logsumexp",
            "Logarithm of the sum of exp(x), without overflow.",
            logsumexp,
            "`log(reduce_sum(exp(x - m))) + m`, with `m` the maximum where that is finite, else 0",
        ),
        _argument(
            "argmax", "Index of the largest element: of the first NaN, else of the first of equals.", True
        ),
        _argument(
            "argmin", "Index of the smallest element: of the first NaN, else of the first of equals.", False
        ),
        _running("cumsum", "sum", "Sum of all up to here, this one included.", NUMBERS),
        _running("cumprod", "product", "Product of all up to here, this one included.", NUMBERS),
        _running("cummax", "max", "Maximum of all up to here, this one included.", REALS),
        _running("cummin", "min", "Minimum of all up to here, this one included.", REALS),
    ),
)
