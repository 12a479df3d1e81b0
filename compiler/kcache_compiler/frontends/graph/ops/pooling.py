"""Reductions over sliding windows, and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, combiner, integers
from kcache_compiler.frontends.graph.ops import elementwise as el
from kcache_compiler.frontends.graph.ops.reductions import COMBINERS, identity_element
from kcache_compiler.frontends.graph.size_expression import Size, plus, symbol
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    FLOATS,
    NUMBERS,
    REALS,
    StaticSizeRequired,
    Type,
    Value,
    axes_of,
)


def window_count(
    name: str, size: Size, window: int, stride: int, low: int, high: int, base: int, dilation: int
) -> tuple[Size, str]:
    """Return how many windows fit along an axis, and a formula for it if it is not a polynomial of the size.

    ``name`` names the axis in messages.
    """
    if window < 1 or stride < 1 or base < 1 or dilation < 1:
        raise InvalidProgram(f"{name}: window, stride and dilations must be at least 1")
    extent = (window - 1) * dilation + 1
    if isinstance(size, int):
        padded = (size and (size - 1) * base + 1) + low + high
        return (0 if padded < extent else (padded - extent) // stride + 1), ""
    if base != 1:
        raise StaticSizeRequired(f"{name} is dynamic: base dilation needs a static size")
    slack = low + high - extent + 1
    if stride == 1 and slack >= 0:
        return plus(size, slack), ""
    formula = f"max(0, ({size} + {slack - 1})//{stride} + 1)"
    return symbol(formula), formula


def emit_binding_symbols(
    e: Emitter,
    op: str,
    operands: Sequence[Value],
    type: Type,
    formulas: dict[int, str],
    attributes: str,
    region: str = "",
) -> Value:
    """Emit an operation; the sizes of its result define symbols. ``formulas``: axis -> formula."""
    result = e.emit(op, operands, type, attributes, region)
    for axis, formula in formulas.items():
        e.bind_symbol(formula, result, axis)
    return result


def reduce_window(
    e: Emitter,
    x: Value,
    *,
    kind: str,
    window: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    low: tuple[int, ...] | None = None,
    high: tuple[int, ...] | None = None,
    base_dilation: tuple[int, ...] | None = None,
    window_dilation: tuple[int, ...] | None = None,
) -> Value:
    """Reduce the elements at each position of a window."""
    rank = len(x.dims)
    if kind in ("and", "or", "xor") and x.dtype in (*FLOATS, "c64", "c128"):
        raise InvalidProgram(f"kind is {kind!r}, but {x} has no bits")
    if kind in ("max", "min") and x.dtype in ("c64", "c128"):
        raise InvalidProgram(f"kind is {kind!r}, but {x} is complex, which has no order")
    defaulted = {"strides": strides, "base_dilation": base_dilation, "window_dilation": window_dilation}
    one_by_default = {name: (1,) * rank if values is None else values for name, values in defaulted.items()}
    zero_by_default = {
        name: (0,) * rank if values is None else values for name, values in (("low", low), ("high", high))
    }
    for name, values in {"window": window, **one_by_default, **zero_by_default}.items():
        if len(values) != rank:
            raise InvalidProgram(
                f"{name} has {len(values)} entries, but {x} has {rank} axes: give one for each"
            )
    dims, formulas = window_counts(
        e,
        x,
        range(rank),
        window,
        one_by_default["strides"],
        zero_by_default["low"],
        zero_by_default["high"],
        one_by_default["base_dilation"],
        one_by_default["window_dilation"],
    )
    attributes = (
        f"window_dimensions = {integers(window)}, window_strides = {integers(one_by_default['strides'])}, "
        f"base_dilations = {integers(one_by_default['base_dilation'])}, "
        f"window_dilations = {integers(one_by_default['window_dilation'])}"
        + padding_attribute(zero_by_default["low"], zero_by_default["high"])
    )
    operands = (x, identity_element(e, kind, x.dtype))
    region = combiner(COMBINERS[kind], x.dtype)
    return emit_binding_symbols(
        e, "reduce_window", operands, Type(x.dtype, tuple(dims)), formulas, attributes, region
    )


def window_counts(
    e: Emitter, x: Value, axes: Sequence[int], *parameters: Sequence[int]
) -> tuple[list[Size], dict[int, str]]:
    """Return how many windows fit along each axis, and the formulas of counts that are not polynomials.

    ``parameters``: window, stride, low and high padding, base and window dilation, each by position in
    ``axes``.
    """
    dims: list[Size] = []
    formulas: dict[int, str] = {}
    for index, axis in enumerate(axes):
        window, stride, low, high, base, dilation = (values[index] for values in parameters)
        settings = (window, stride, low, high, base, dilation)
        size, formula = window_count(f"axis {axis} of {x}", x.dims[axis], *settings)
        dims.append(size)
        if formula:
            formulas[index] = formula
            if e.is_static((x.dims[axis],)):
                e.define_sample(formula, e.sample(window_count("", e.sample(x.dims[axis]), *settings)[0]))
    return dims, formulas


def padding_attribute(low: Sequence[int], high: Sequence[int]) -> str:
    """Return the attribute of (low, high) paddings, empty for no axes."""
    if not low:
        return ""
    rows = ", ".join(f"[{a}, {b}]" for a, b in zip(low, high, strict=True))
    return f", padding = dense<[{rows}]> : tensor<{len(low)}x2xi64>"


def _pool(
    e: Emitter,
    x: Value,
    kind: str,
    window: tuple[int, ...],
    strides: tuple[int, ...] | None,
    low: tuple[int, ...] | None,
    high: tuple[int, ...] | None,
    axes: tuple[int, ...] | None,
) -> Value:
    """Reduce windows over some axes, by default the last ones."""
    rank = len(x.dims)
    pooled = tuple(range(rank - len(window), rank)) if axes is None else axes
    if len(window) > rank or len(pooled) != len(window):
        raise InvalidProgram(f"the window has {len(window)} sizes for {len(pooled)} axes of {x}")
    normalized = axes_of(pooled, rank)

    def by_axis(values: tuple[int, ...] | None, name: str, default: int) -> tuple[int, ...]:
        if values is None:
            return (default,) * rank
        if len(values) != len(normalized):
            raise InvalidProgram(f"{name} has {len(values)} entries for a window of {len(normalized)} sizes")
        values_by_axis = dict(zip(normalized, values, strict=True))
        return tuple(values_by_axis.get(axis, default) for axis in range(rank))

    return reduce_window(
        e,
        x,
        kind=kind,
        window=by_axis(window, "window", 1),
        strides=by_axis(window if strides is None else strides, "strides", 1),
        low=by_axis(low, "low", 0),
        high=by_axis(high, "high", 0),
    )


def max_pool(
    e: Emitter,
    x: Value,
    *,
    window: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    low: tuple[int, ...] | None = None,
    high: tuple[int, ...] | None = None,
    axes: tuple[int, ...] | None = None,
) -> Value:
    """Return the maximum of each window."""
    return _pool(e, x, "max", window, strides, low, high, axes)


def avg_pool(
    e: Emitter,
    x: Value,
    *,
    window: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    low: tuple[int, ...] | None = None,
    high: tuple[int, ...] | None = None,
    axes: tuple[int, ...] | None = None,
    count_padding: bool = False,
) -> Value:
    """Return the mean of each window."""
    total = _pool(e, x, "sum", window, strides, low, high, axes)
    if count_padding or not any((*(low or ()), *(high or ()))):
        elements = 1
        for size in window:
            elements *= size
        return el.divide(e, total, e.scalar(x.dtype, elements))
    counts = _pool(e, e.like(x, 1), "sum", window, strides, low, high, axes)
    return el.divide(e, total, counts)


_STRIDES = Attribute(
    "strides", "ints", "Strides of the window. Default: its sizes, so that windows do not overlap.", None
)
LOW = Attribute("low", "ints", "Padding before the first element. Default: 0.", None)
HIGH = Attribute("high", "ints", "Padding after the last element. Default: 0.", None)
_POOL = (
    Attribute("window", "ints", "Sizes of the window."),
    _STRIDES,
    LOW,
    HIGH,
    Attribute("axes", "ints", "The axes that the window slides over. Default: the last ones.", None),
)
WINDOW_RULE = (
    "floor((low + size + high - ((window - 1) * dilation + 1)) / stride) + 1 along an axis, or 0 if the "
    "window does not fit"
)

POOLING = Group(
    "Pooling",
    (
        Op(
            "reduce_window",
            "A reduction of each position of a window; padding does not contribute.",
            (Operand("x", ("i1", *NUMBERS)),),
            reduce_window,
            WINDOW_RULE,
            "`stablehlo.reduce_window`",
            (
                Attribute(
                    "kind", "string", "The operation that combines elements.", choices=tuple(COMBINERS)
                ),
                Attribute("window", "ints", "The size of the window along each axis of x."),
                Attribute("strides", "ints", "Strides of the window. Default: 1.", None),
                LOW,
                HIGH,
                Attribute(
                    "base_dilation", "ints", "Distance of neighboring elements of x. Default: 1.", None
                ),
                Attribute(
                    "window_dilation",
                    "ints",
                    "Distance of neighboring elements of the window. Default: 1.",
                    None,
                ),
            ),
        ),
        Op(
            "max_pool",
            "Maximum of each window.",
            (Operand("x", REALS),),
            max_pool,
            WINDOW_RULE,
            "`reduce_window` with `max`",
            _POOL,
            composite=True,
        ),
        Op(
            "avg_pool",
            "Mean of each window.",
            (Operand("x", FLOATS),),
            avg_pool,
            WINDOW_RULE,
            "`reduce_window` with `sum`, divided by the number of elements",
            (
                *_POOL,
                Attribute("count_padding", "bool", "Whether padding counts as zeros in the mean.", False),
            ),
            composite=True,
        ),
    ),
)
