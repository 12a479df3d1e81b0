"""Products of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, integers
from kcache_compiler.frontends.graph.extent import Extent, Size
from kcache_compiler.frontends.graph.ops.pooling import FITS, HIGH, LOW, emit_windowed, padding, windows
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    NUMBERS,
    OpenAxis,
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
    """The general product."""
    own = same_dtype(lhs, rhs)
    left = axes_of((*lhs_batch, *lhs_contracting), len(lhs.dims), "axes of lhs")
    right = axes_of((*rhs_batch, *rhs_contracting), len(rhs.dims), "axes of rhs")
    for name, one, other in (
        ("batch", lhs_batch, rhs_batch),
        ("contracting", lhs_contracting, rhs_contracting),
    ):
        if len(one) != len(other):
            raise InvalidProgram(f"lhs_{name} has {len(one)} entries and rhs_{name} has {len(other)}")
    for i, j in zip(left, right, strict=True):
        if lhs.dims[i] != rhs.dims[j]:
            raise InvalidProgram(f"axis {i} of {lhs} and axis {j} of {rhs} differ in size")
    batches = len(lhs_batch)
    dims = (
        *(lhs.dims[axis] for axis in left[:batches]),
        *(size for axis, size in enumerate(lhs.dims) if axis not in left),
        *(size for axis, size in enumerate(rhs.dims) if axis not in right),
    )
    numbers = [
        ("lhs_batching_dimensions", left[:batches]),
        ("rhs_batching_dimensions", right[:batches]),
        ("lhs_contracting_dimensions", left[batches:]),
        ("rhs_contracting_dimensions", right[batches:]),
    ]
    text = ", ".join(f"{name} = {list(axes)}" for name, axes in numbers if axes)
    attribute = f"dot_dimension_numbers = #stablehlo.dot<{text}>"
    return e.emit("dot_general", (lhs, rhs), Type(dtype or own, dims), attribute)


def matmul(e: Emitter, lhs: Value, rhs: Value) -> Value:
    """``lhs @ rhs`` by the rule of NumPy."""
    same_dtype(lhs, rhs)
    if not lhs.dims or not rhs.dims:
        raise InvalidProgram(f"{lhs} and {rhs}: a matrix product takes no scalars; use multiply")
    inner = len(rhs.dims) - 2 if len(rhs.dims) > 1 else 0
    if lhs.dims[-1] != rhs.dims[inner]:
        raise InvalidProgram(
            f"the last axis of {lhs} and axis {inner} of {rhs} differ: {lhs.dims[-1]} and {rhs.dims[inner]}"
        )
    last = (len(lhs.dims) - 1,)
    if len(rhs.dims) <= 2:
        return dot_general(e, lhs, rhs, lhs_contracting=last, rhs_contracting=(inner,))
    batch = broadcast_dims(
        (Value("", Type(lhs.dtype, lhs.dims[:-2])), Value("", Type(rhs.dtype, rhs.dims[:-2])))
    )
    count = len(batch)
    left = e.broadcast_to(lhs, (*batch, *lhs.dims[-2:]))
    right = e.broadcast_to(rhs, (*batch, *rhs.dims[-2:]))
    return dot_general(
        e,
        left,
        right,
        lhs_contracting=(len(left.dims) - 1,),
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
    """Sums of products of a kernel with each place of a window; the kernel is not flipped."""
    dtype = same_dtype(x, kernel)
    rank = len(x.dims)
    if rank < 2 or len(kernel.dims) != rank:
        raise InvalidProgram(f"{x} and {kernel} must have one rank, from 2")
    spatial = rank - 2
    letters = "".join(chr(ord("0") + i) if i < 10 else chr(ord("a") + i - 10) for i in range(spatial))
    source = _layout("input_layout", input_layout or f"NC{letters}", "NC", rank)
    axes = [letter for letter in (input_layout or f"NC{letters}") if letter not in "NC"]
    weights = _layout("kernel_layout", kernel_layout or f"OI{''.join(axes)}", "OI", rank, axes)
    made = _layout("output_layout", output_layout or input_layout or f"NC{letters}", "NC", rank, axes)
    ones = {
        name: (1,) * spatial if values is None else values
        for name, values in (
            ("strides", strides),
            ("input_dilation", input_dilation),
            ("kernel_dilation", kernel_dilation),
        )
    }
    zeros = {
        name: (0,) * spatial if values is None else values for name, values in (("low", low), ("high", high))
    }
    for name, values in {**ones, **zeros}.items():
        if len(values) != spatial:
            raise InvalidProgram(f"{name} has {len(values)} entries for {spatial} spatial axes")
    batch, features = _groups(x, kernel, source, weights, groups, batch_groups)
    window = [require_static(kernel, weights[letter], "kernels have fixed sizes") for letter in axes]
    sizes, formulas = windows(
        e,
        x,
        [source[letter] for letter in axes],
        window,
        ones["strides"],
        zeros["low"],
        zeros["high"],
        ones["input_dilation"],
        ones["kernel_dilation"],
    )
    dims: list[Size] = [0] * rank
    dims[made["N"]], dims[made["C"]] = batch, features
    for letter, size in zip(axes, sizes, strict=True):
        dims[made[letter]] = size
    attributes = (
        f"dimension_numbers = #stablehlo.conv<{_numbers(source, axes, 'bf')}x{_numbers(weights, axes, 'oi')}"
        f"->{_numbers(made, axes, 'bf')}>, window_strides = {integers(ones['strides'])}, "
        f"lhs_dilation = {integers(ones['input_dilation'])}, "
        f"rhs_dilation = {integers(ones['kernel_dilation'])}, "
        f"feature_group_count = {groups} : i64, batch_group_count = {batch_groups} : i64"
        + padding(zeros["low"], zeros["high"])
    )
    named = {made[axes[place]]: formula for place, formula in formulas.items()}
    return emit_windowed(e, "convolution", (x, kernel), Type(dtype, tuple(dims)), named, attributes)


def _layout(
    name: str, text: str, fixed: str, rank: int, spatial: Sequence[str] | None = None
) -> dict[str, int]:
    rest = [letter for letter in text if letter not in fixed]
    fits = len(text) == len(set(text)) == rank and set(fixed) <= set(text)
    if not fits or (spatial is not None and sorted(rest) != sorted(spatial)):
        wanted = f" and the spatial letters {''.join(spatial)!r}" if spatial is not None else ""
        raise InvalidProgram(
            f"{name} is {text!r}: it has {rank} different letters, among them {' and '.join(fixed)}{wanted}"
        )
    return {letter: axis for axis, letter in enumerate(text)}


def _groups(
    x: Value, kernel: Value, source: dict[str, int], weights: dict[str, int], groups: int, batch_groups: int
) -> tuple[Size, int]:
    channels = require_static(x, source["C"], "a convolution needs its size")
    features = require_static(kernel, weights["O"], "kernels have fixed sizes")
    inside = require_static(kernel, weights["I"], "kernels have fixed sizes")
    if groups < 1 or batch_groups < 1 or (groups > 1 and batch_groups > 1):
        raise InvalidProgram("groups and batch_groups are from 1, and one of them is 1")
    if channels != inside * groups or features % groups or features % batch_groups:
        raise InvalidProgram(
            f"{x} has {channels} channels and {kernel} takes {inside} in each of {groups} groups, and gives "
            f"{features} features, which its groups must divide"
        )
    batch = x.dims[source["N"]]
    if batch_groups == 1:
        return batch, features
    if isinstance(batch, Extent):
        raise OpenAxis(f"axis {source['N']} of {x} is open: it takes no batch_groups")
    if batch % batch_groups:
        raise InvalidProgram(f"{batch_groups} batch groups do not divide the batch of {x}")
    return batch // batch_groups, features


def _numbers(layout: dict[str, int], spatial: Sequence[str], fixed: str) -> str:
    words = {"bf": ("N", "C"), "oi": ("O", "I")}[fixed]
    names = dict(zip(words, fixed, strict=True)) | {letter: str(i) for i, letter in enumerate(spatial)}
    return "[" + ", ".join(names[letter] for letter in sorted(layout, key=lambda key: layout[key])) + "]"


PRODUCTS = Group(
    "Products",
    (
        Op(
            "matmul",
            "lhs @ rhs, by the rule of NumPy.",
            (Operand("lhs", NUMBERS), Operand("rhs", NUMBERS)),
            matmul,
            "one dtype; the last axis of lhs and the one before the last of rhs (its only one) are "
            "contracted, axes before those broadcast",
            "`stablehlo.dot_general`; batch axes only where rhs has more than 2 axes",
        ),
        Op(
            "dot_general",
            "Sums of products, in the general form of StableHLO.",
            (Operand("lhs", NUMBERS), Operand("rhs", NUMBERS)),
            dot_general,
            "one dtype; paired axes have one size; the batch axes, then what is left of lhs, then of rhs",
            "`stablehlo.dot_general`",
            (
                Attribute("lhs_contracting", "ints", "Axes of lhs that are summed over."),
                Attribute("rhs_contracting", "ints", "Their partners in rhs."),
                Attribute("lhs_batch", "ints", "Axes of lhs that go along with those of rhs.", ()),
                Attribute("rhs_batch", "ints", "Their partners in rhs.", ()),
                Attribute(
                    "dtype", "dtype", "The dtype of the sums. Default: that of the operands.", None, NUMBERS
                ),
            ),
        ),
        Op(
            "convolution",
            "Sums of products of a kernel with each place of a window; the kernel is not flipped.",
            (Operand("x", NUMBERS), Operand("kernel", NUMBERS)),
            convolution,
            "one dtype and rank; x has as many channels as the kernel's inputs times `groups`; spatially "
            + FITS,
            "`stablehlo.convolution`",
            (
                Attribute("strides", "ints", "Steps along the spatial axes. Default: 1.", None),
                LOW,
                HIGH,
                Attribute("input_dilation", "ints", "Distance of neighbours of x. Default: 1.", None),
                Attribute(
                    "kernel_dilation", "ints", "Distance of neighbours of the kernel. Default: 1.", None
                ),
                Attribute("groups", "int", "Groups of channels that do not mix.", 1),
                Attribute("batch_groups", "int", "Groups of the batch that do not mix.", 1),
                Attribute(
                    "input_layout",
                    "string",
                    "The axes of x: N is the batch, C the channels, every other letter a spatial axis; their "
                    'order is that of strides and paddings. Default: N, C, then spatial axes, as "NCHW".',
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
