"""Matrix products, general contractions and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, integers
from kcache_compiler.frontends.graph.ops.pooling import (
    HIGH,
    LOW,
    WINDOW_RULE,
    emit_binding_symbols,
    padding_attribute,
    window_counts,
)
from kcache_compiler.frontends.graph.size_expression import Size, SizeExpression
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    NUMBERS,
    StaticSizeRequired,
    Type,
    Value,
    axes_of,
    broadcast_dims,
    require_static,
    same_dtype,
)


def dot_general(
    e: Emitter,
    lhs: Value,
    rhs: Value,
    *,
    lhs_contracting: tuple[int, ...],
    rhs_contracting: tuple[int, ...],
    lhs_batch: tuple[int, ...] = (),
    rhs_batch: tuple[int, ...] = (),
    dtype: str | None = None,
) -> Value:
    """Emit a contraction in the general form of StableHLO."""
    operand_dtype = same_dtype(lhs, rhs)
    lhs_axes = axes_of((*lhs_batch, *lhs_contracting), len(lhs.dims), "axes of lhs")
    rhs_axes = axes_of((*rhs_batch, *rhs_contracting), len(rhs.dims), "axes of rhs")
    for name, lhs_list, rhs_list in (
        ("batch", lhs_batch, rhs_batch),
        ("contracting", lhs_contracting, rhs_contracting),
    ):
        if len(lhs_list) != len(rhs_list):
            raise InvalidProgram(
                f"lhs_{name} has {len(lhs_list)} entries, but rhs_{name} has {len(rhs_list)}"
            )
    for i, j in zip(lhs_axes, rhs_axes, strict=True):
        if lhs.dims[i] != rhs.dims[j]:
            raise InvalidProgram(f"axis {i} of {lhs} and axis {j} of {rhs} differ in size")
    batch_count = len(lhs_batch)
    dims = (
        *(lhs.dims[axis] for axis in lhs_axes[:batch_count]),
        *(size for axis, size in enumerate(lhs.dims) if axis not in lhs_axes),
        *(size for axis, size in enumerate(rhs.dims) if axis not in rhs_axes),
    )
    dimension_numbers = [
        ("lhs_batching_dimensions", lhs_axes[:batch_count]),
        ("rhs_batching_dimensions", rhs_axes[:batch_count]),
        ("lhs_contracting_dimensions", lhs_axes[batch_count:]),
        ("rhs_contracting_dimensions", rhs_axes[batch_count:]),
    ]
    text = ", ".join(f"{name} = {list(axes)}" for name, axes in dimension_numbers if axes)
    attribute = f"dot_dimension_numbers = #stablehlo.dot<{text}>"
    return e.emit("dot_general", (lhs, rhs), Type(dtype or operand_dtype, dims), attribute)


def matmul(e: Emitter, lhs: Value, rhs: Value) -> Value:
    """Return ``lhs @ rhs`` by NumPy's rule."""
    same_dtype(lhs, rhs)
    if not lhs.dims or not rhs.dims:
        raise InvalidProgram(f"{lhs} and {rhs}: a matrix product does not accept scalars; use multiply")
    contracted = len(rhs.dims) - 2 if len(rhs.dims) > 1 else 0
    if lhs.dims[-1] != rhs.dims[contracted]:
        raise InvalidProgram(
            f"the last axis of {lhs} and axis {contracted} of {rhs} differ: {lhs.dims[-1]} and "
            f"{rhs.dims[contracted]}"
        )
    last = (len(lhs.dims) - 1,)
    if len(rhs.dims) <= 2:
        return dot_general(e, lhs, rhs, lhs_contracting=last, rhs_contracting=(contracted,))
    batch = broadcast_dims(
        (Value("", Type(lhs.dtype, lhs.dims[:-2])), Value("", Type(rhs.dtype, rhs.dims[:-2])))
    )
    count = len(batch)
    wide_lhs = e.broadcast_to(lhs, (*batch, *lhs.dims[-2:]))
    wide_rhs = e.broadcast_to(rhs, (*batch, *rhs.dims[-2:]))
    return dot_general(
        e,
        wide_lhs,
        wide_rhs,
        lhs_contracting=(len(wide_lhs.dims) - 1,),
        rhs_contracting=(count,),
        lhs_batch=tuple(range(count)),
        rhs_batch=tuple(range(count)),
    )


def convolution(
    e: Emitter,
    x: Value,
    kernel: Value,
    *,
    strides: tuple[int, ...] | None = None,
    low: tuple[int, ...] | None = None,
    high: tuple[int, ...] | None = None,
    input_dilation: tuple[int, ...] | None = None,
    kernel_dilation: tuple[int, ...] | None = None,
    groups: int = 1,
    batch_groups: int = 1,
    input_layout: str | None = None,
    kernel_layout: str | None = None,
    output_layout: str | None = None,
) -> Value:
    """Emit a convolution, or cross-correlation: the kernel is not flipped."""
    dtype = same_dtype(x, kernel)
    rank = len(x.dims)
    if rank < 2 or len(kernel.dims) != rank:
        raise InvalidProgram(f"{x} and {kernel} must have the same rank, at least 2")
    layouts = _read_layouts(rank, input_layout, kernel_layout, output_layout)
    spatial = len(layouts.spatial)
    steps = {"strides": strides, "input_dilation": input_dilation, "kernel_dilation": kernel_dilation}
    settings = {name: (1,) * spatial if values is None else values for name, values in steps.items()}
    for name, pads in (("low", low), ("high", high)):
        settings[name] = (0,) * spatial if pads is None else pads
    for name, values in settings.items():
        if len(values) != spatial:
            raise InvalidProgram(f"{name} has {len(values)} entries for {spatial} spatial axes")
    batch, features = _check_groups(x, kernel, layouts.input, layouts.kernel, groups, batch_groups)
    axes = [layouts.kernel[letter] for letter in layouts.spatial]
    window = [require_static(kernel, axis, "a kernel needs static sizes") for axis in axes]
    input_axes = [layouts.input[letter] for letter in layouts.spatial]
    parameters = ("strides", "low", "high", "input_dilation", "kernel_dilation")
    sizes, formulas = window_counts(e, x, input_axes, window, *(settings[name] for name in parameters))
    dims: list[Size] = [0] * rank
    dims[layouts.output["N"]], dims[layouts.output["C"]] = batch, features
    for letter, size in zip(layouts.spatial, sizes, strict=True):
        dims[layouts.output[letter]] = size
    attributes = (
        f"dimension_numbers = {layouts.attribute}, window_strides = {integers(settings['strides'])}, "
        f"lhs_dilation = {integers(settings['input_dilation'])}, "
        f"rhs_dilation = {integers(settings['kernel_dilation'])}, "
        f"feature_group_count = {groups} : i64, batch_group_count = {batch_groups} : i64"
        + padding_attribute(settings["low"], settings["high"])
    )
    by_axis = {layouts.output[layouts.spatial[index]]: formula for index, formula in formulas.items()}
    return emit_binding_symbols(e, "convolution", (x, kernel), Type(dtype, tuple(dims)), by_axis, attributes)


class _Layouts(NamedTuple):
    """Axes of input, kernel and output by letter; ``spatial`` are the spatial letters in input order."""

    input: dict[str, int]
    kernel: dict[str, int]
    output: dict[str, int]
    spatial: list[str]

    @property
    def attribute(self) -> str:
        """The layouts as ``#stablehlo.conv``."""
        source, weights = (
            _dimension_numbers(layout, self.spatial, letters)
            for layout, letters in ((self.input, "bf"), (self.kernel, "oi"))
        )
        return f"#stablehlo.conv<{source}x{weights}->{_dimension_numbers(self.output, self.spatial, 'bf')}>"


def _read_layouts(
    rank: int, input_layout: str | None, kernel_layout: str | None, output_layout: str | None
) -> _Layouts:
    """Return the layouts of a convolution, by default N, C (of the kernel O, I), then spatial axes."""
    digits = "".join(chr(ord("0") + i) if i < 10 else chr(ord("a") + i - 10) for i in range(rank - 2))
    text = input_layout or f"NC{digits}"
    source = _read_layout("input_layout", text, "NC", rank)
    spatial = [letter for letter in text if letter not in "NC"]
    weights = kernel_layout or f"OI{''.join(spatial)}"
    result = output_layout or text
    return _Layouts(
        source,
        _read_layout("kernel_layout", weights, "OI", rank, spatial),
        _read_layout("output_layout", result, "NC", rank, spatial),
        spatial,
    )


def _read_layout(
    name: str, text: str, required: str, rank: int, spatial: Sequence[str] | None = None
) -> dict[str, int]:
    """Return the axis of each letter of a layout. Raises ``InvalidProgram`` for other letters."""
    spatial_letters = [letter for letter in text if letter not in required]
    fits = len(text) == len(set(text)) == rank and set(required) <= set(text)
    if not fits or (spatial is not None and sorted(spatial_letters) != sorted(spatial)):
        expected = f" and the spatial letters {''.join(spatial)!r}" if spatial is not None else ""
        raise InvalidProgram(
            f"{name} is {text!r}: it must have {rank} distinct letters, among them "
            f"{' and '.join(required)}{expected}"
        )
    return {letter: axis for axis, letter in enumerate(text)}


def _check_groups(
    x: Value,
    kernel: Value,
    input_axes: dict[str, int],
    kernel_axes: dict[str, int],
    groups: int,
    batch_groups: int,
) -> tuple[Size, int]:
    """Return the sizes of the batch and of the features, checked against the groups."""
    channels = require_static(x, input_axes["C"], "a convolution needs its size")
    features = require_static(kernel, kernel_axes["O"], "a kernel needs static sizes")
    group_channels = require_static(kernel, kernel_axes["I"], "a kernel needs static sizes")
    if groups < 1 or batch_groups < 1 or (groups > 1 and batch_groups > 1):
        raise InvalidProgram("groups and batch_groups must be at least 1, and one of them must be 1")
    if channels != group_channels * groups or features % groups or features % batch_groups:
        raise InvalidProgram(
            f"{x} has {channels} channels, but {kernel} takes {group_channels} in each of {groups} "
            f"groups, and has "
            f"{features} features, which the groups must divide"
        )
    batch = x.dims[input_axes["N"]]
    if batch_groups == 1:
        return batch, features
    if isinstance(batch, SizeExpression):
        raise StaticSizeRequired(f"axis {input_axes['N']} of {x} is dynamic: it takes no batch_groups")
    if batch % batch_groups:
        raise InvalidProgram(f"{batch_groups} batch groups do not divide the batch of {x}")
    return batch // batch_groups, features


def _dimension_numbers(layout: dict[str, int], spatial: Sequence[str], required: str) -> str:
    """Return a layout in the syntax of ``#stablehlo.conv``."""
    letters = {"bf": ("N", "C"), "oi": ("O", "I")}[required]
    names = dict(zip(letters, required, strict=True)) | {letter: str(i) for i, letter in enumerate(spatial)}
    return "[" + ", ".join(names[letter] for letter in sorted(layout, key=lambda key: layout[key])) + "]"


CONTRACTIONS = Group(
    "Contractions and convolutions",
    (
        Op(
            "matmul",
            "lhs @ rhs, by NumPy's rule.",
            (Operand("lhs", NUMBERS), Operand("rhs", NUMBERS)),
            matmul,
            "one dtype; the last axis of lhs and the second-to-last of rhs (or its only one) are "
            "contracted, the axes before them broadcast",
            "`stablehlo.dot_general`; batch axes only if rhs has more than 2 axes",
        ),
        Op(
            "dot_general",
            "A contraction in the general form of StableHLO.",
            (Operand("lhs", NUMBERS), Operand("rhs", NUMBERS)),
            dot_general,
            "one dtype; equal sizes of paired axes; the batch axes, the free axes of lhs, those of rhs",
            "`stablehlo.dot_general`",
            (
                Attribute("lhs_contracting", "ints", "Axes of lhs to contract."),
                Attribute("rhs_contracting", "ints", "The axes of rhs that are paired with them."),
                Attribute("lhs_batch", "ints", "Batch axes of lhs.", ()),
                Attribute("rhs_batch", "ints", "The axes of rhs that are paired with them.", ()),
                Attribute(
                    "dtype", "dtype", "The dtype of the result. Default: that of the operands.", None, NUMBERS
                ),
            ),
        ),
        Op(
            "convolution",
            "Sums of products of a kernel with each position of a window; the kernel is not flipped.",
            (Operand("x", NUMBERS), Operand("kernel", NUMBERS)),
            convolution,
            "one dtype and rank; x has as many channels as the kernel's inputs times `groups`; spatially "
            + WINDOW_RULE,
            "`stablehlo.convolution`",
            (
                Attribute("strides", "ints", "Strides along the spatial axes. Default: 1.", None),
                LOW,
                HIGH,
                Attribute(
                    "input_dilation", "ints", "Distance of neighboring elements of x. Default: 1.", None
                ),
                Attribute(
                    "kernel_dilation",
                    "ints",
                    "Distance of neighboring elements of the kernel. Default: 1.",
                    None,
                ),
                Attribute("groups", "int", "Number of independent groups of channels.", 1),
                Attribute("batch_groups", "int", "Number of independent groups of the batch.", 1),
                Attribute(
                    "input_layout",
                    "string",
                    "The axes of x: N is the batch, C the channels, every other letter a spatial axis; "
                    "strides "
                    'and paddings have their order. Default: N, C, then spatial axes, as "NCHW".',
                    None,
                ),
                Attribute(
                    "kernel_layout",
                    "string",
                    'The axes of the kernel: O are features, I channels, spatial letters as in x, as "OIHW". '
                    "Default: O, I, then spatial axes.",
                    None,
                ),
                Attribute("output_layout", "string", "The axes of the result. Default: input_layout.", None),
            ),
        ),
    ),
)
