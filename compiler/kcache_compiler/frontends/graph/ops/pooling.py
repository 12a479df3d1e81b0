"""Windows that slide over a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, combiner, integers
from kcache_compiler.frontends.graph.extent import Size, plus, symbol
from kcache_compiler.frontends.graph.ops import elementwise as el
from kcache_compiler.frontends.graph.ops.reductions import COMBINERS, neutral
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import FLOATS, NUMBERS, REALS, OpenAxis, Type, Value, axes_of


def window_size(
    name: str, size: Size, window: int, stride: int, low: int, high: int, base: int, dilation: int
) -> tuple[Size, str]:
    """How often a window fits along an axis; and the name of that where it is no polynomial of the size.

    ``name`` says which axis, for messages.
    """
    if window < 1 or stride < 1 or base < 1 or dilation < 1:
        raise InvalidProgram(f"{name}: window, stride and dilations are from 1")
    reach = (window - 1) * dilation + 1
    if isinstance(size, int):
        padded = (size and (size - 1) * base + 1) + low + high
        return (0 if padded < reach else (padded - reach) // stride + 1), ""
    if base != 1:
        raise OpenAxis(f"{name} is open: it takes no dilation")
    slack = low + high - reach + 1
    if stride == 1 and slack >= 0:
        return plus(size, slack), ""
    formula = f"max(0, ({size} + {slack - 1})//{stride} + 1)"
    return symbol(formula), formula


def emit_windowed(
    e: Emitter,
    op: str,
    operands: Sequence[Value],
    type: Type,
    formulas: dict[int, str],
    attributes: str,
    region: str = "",
) -> Value:
    """An operation whose result names sizes: ``formulas`` by axis."""
    result = e.emit(op, operands, type, attributes, region)
    for axis, formula in formulas.items():
        e.bind(formula, result, axis)
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
    """A reduction over each place of a window."""
    rank = len(x.dims)
    if kind in ("and", "or", "xor") and x.dtype in (*FLOATS, "c64", "c128"):
        raise InvalidProgram(f"kind is {kind!r}, and {x} has no bits")
    if kind in ("max", "min") and x.dtype in ("c64", "c128"):
        raise InvalidProgram(f"kind is {kind!r}, and {x} is complex, which has no order")
    named = {"strides": strides, "base_dilation": base_dilation, "window_dilation": window_dilation}
    ones = {name: (1,) * rank if values is None else values for name, values in named.items()}
    zeros = {
        name: (0,) * rank if values is None else values for name, values in (("low", low), ("high", high))
    }
    for name, values in {"window": window, **ones, **zeros}.items():
        if len(values) != rank:
            raise InvalidProgram(f"{name} has {len(values)} entries, and {x} has {rank} axes: one for each")
    dims, formulas = windows(
        e,
        x,
        range(rank),
        window,
        ones["strides"],
        zeros["low"],
        zeros["high"],
        ones["base_dilation"],
        ones["window_dilation"],
    )
    attributes = (
        f"window_dimensions = {integers(window)}, window_strides = {integers(ones['strides'])}, "
        f"base_dilations = {integers(ones['base_dilation'])}, "
        f"window_dilations = {integers(ones['window_dilation'])}" + padding(zeros["low"], zeros["high"])
    )
    operands = (x, neutral(e, kind, x.dtype))
    region = combiner(COMBINERS[kind], x.dtype)
    return emit_windowed(
        e, "reduce_window", operands, Type(x.dtype, tuple(dims)), formulas, attributes, region
    )


def windows(
    e: Emitter, x: Value, axes: Sequence[int], *parameters: Sequence[int]
) -> tuple[list[Size], dict[int, str]]:
    """How often a window fits along each axis; the names of sizes that are no polynomials, by place."""
    dims: list[Size] = []
    formulas: dict[int, str] = {}
    for place, axis in enumerate(axes):
        window, stride, low, high, base, dilation = (values[place] for values in parameters)
        rest = (window, stride, low, high, base, dilation)
        size, formula = window_size(f"axis {axis} of {x}", x.dims[axis], *rest)
        dims.append(size)
        if formula:
            formulas[place] = formula
            if e.fixed((x.dims[axis],)):
                e.define(formula, e.sample(window_size("", e.sample(x.dims[axis]), *rest)[0]))
    return dims, formulas


def padding(low: Sequence[int], high: Sequence[int]) -> str:
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
    rank = len(x.dims)
    along = tuple(range(rank - len(window), rank)) if axes is None else axes
    if len(window) > rank or len(along) != len(window):
        raise InvalidProgram(f"a window of {len(window)} sizes for {len(along)} axes of {x}")
    found = axes_of(along, rank)

    def whole(values: tuple[int, ...] | None, name: str, rest: int) -> tuple[int, ...]:
        if values is None:
            return (rest,) * rank
        if len(values) != len(found):
            raise InvalidProgram(f"{name} has {len(values)} entries for a window of {len(found)} sizes")
        by_axis = dict(zip(found, values, strict=True))
        return tuple(by_axis.get(axis, rest) for axis in range(rank))

    return reduce_window(
        e,
        x,
        kind=kind,
        window=whole(window, "window", 1),
        strides=whole(window if strides is None else strides, "strides", 1),
        low=whole(low, "low", 0),
        high=whole(high, "high", 0),
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
    """The maximum of each window."""
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
    """The mean of each window."""
    total = _pool(e, x, "sum", window, strides, low, high, axes)
    if count_padding or not any((*(low or ()), *(high or ()))):
        elements = 1
        for size in window:
            elements *= size
        return el.divide(e, total, e.scalar(x.dtype, elements))
    ones = _pool(e, e.like(x, 1), "sum", window, strides, low, high, axes)
    return el.divide(e, total, ones)


_STRIDES = Attribute(
    "strides", "ints", "Steps of the window. Default: its sizes, so that windows do not overlap.", None
)
LOW = Attribute("low", "ints", "Padding in front. Default: 0.", None)
HIGH = Attribute("high", "ints", "Padding behind. Default: 0.", None)
_POOL = (
    Attribute("window", "ints", "Sizes of the window."),
    _STRIDES,
    LOW,
    HIGH,
    Attribute("axes", "ints", "The axes that it slides over. Default: the last ones.", None),
)
FITS = (
    "along an axis floor((low + size + high - ((window - 1) * dilation + 1)) / stride) + 1, or 0 where the "
    "window does not fit"
)

WINDOWS = Group(
    "Windows",
    (
        Op(
            "reduce_window",
            "A reduction over each place of a window; the padding changes nothing.",
            (Operand("x", ("i1", *NUMBERS)),),
            reduce_window,
            FITS,
            "`stablehlo.reduce_window`",
            (
                Attribute("kind", "string", "What combines the elements.", choices=tuple(COMBINERS)),
                Attribute("window", "ints", "The size of the window along each axis of x."),
                Attribute("strides", "ints", "Its steps. Default: 1.", None),
                LOW,
                HIGH,
                Attribute("base_dilation", "ints", "Distance of neighbours of x. Default: 1.", None),
                Attribute(
                    "window_dilation", "ints", "Distance of neighbours in the window. Default: 1.", None
                ),
            ),
        ),
        Op(
            "max_pool",
            "Maximum of each window.",
            (Operand("x", REALS),),
            max_pool,
            FITS,
            "`reduce_window` with `max`",
            _POOL,
            composite=True,
        ),
        Op(
            "avg_pool",
            "Mean of each window.",
            (Operand("x", FLOATS),),
            avg_pool,
            FITS,
            "`reduce_window` with `sum`, divided by the number of elements",
            (
                *_POOL,
                Attribute("count_padding", "bool", "Whether padding counts as elements (zeros).", False),
            ),
            composite=True,
        ),
    ),
)
