"""Convolutions of floats with a dilated window, in groups of channels or images or with axes in another
order than batch, space, feature: their taps are read where they are.

The toolchain puts zeros between the taps, which make NaN of infinities and NaNs that no window touches.
"""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.generic import build_generic, identity

_WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def lower_dilated(op: mlir.Op) -> bool:
    """Rewrite the convolution ``op`` if it is such a one; say whether it was."""
    batches = mlir.int_of(op.attributes["batch_group_count"]) if "batch_group_count" in op.attributes else 1
    groups = mlir.int_of(op.attributes["feature_group_count"]) * batches  # one of them is 1
    numbers = mlir.convolution_dimensions(op)
    spatial = len(numbers["kernel_spatial"])
    stride, dilation, base = (
        _integers(op, name, [1] * spatial) for name in ("window_strides", "rhs_dilation", "lhs_dilation")
    )
    kinds = [str(mlir.element_type(value.type)) for value in (*op.operands, op.results[0])]
    shapes = [mlir.sizes_of(value.type) for value in (*op.operands, op.results[0])]
    if all(step == 1 for step in dilation) or any(None in shape for shape in shapes):
        return False
    if groups == 1 and spatial <= 3 and _is_named(numbers, spatial):
        return False
    if any(kind not in _WIDTHS for kind in kinds) or kinds[0] != kinds[1]:
        return False
    if kinds[0] != kinds[2] and _WIDTHS[kinds[0]] >= _WIDTHS[kinds[2]]:
        return False
    with mlir.before(op):
        image = _padded(op, numbers["input_spatial"], base)
        split = "input_feature" if batches == 1 else "input_batch"
        image = _split(image, numbers[split], groups)
        kernel = _split(op.operands[1], numbers["kernel_output_feature"], groups)
        result = _sum(op, numbers, (groups, batches != 1), (image, kernel), (stride, dilation))
    op.results[0].replace_all_uses_with(result)
    op.erase()
    return True


def _is_named(numbers: mlir.Dimensions, spatial: int) -> bool:
    """Whether the toolchain has its own operation for these axes, which looks at taps only."""
    orders = [
        [numbers["input_batch"], *numbers["input_spatial"], numbers["input_feature"]],
        [numbers["output_batch"], *numbers["output_spatial"], numbers["output_feature"]],
        [*numbers["kernel_spatial"], numbers["kernel_input_feature"], numbers["kernel_output_feature"]],
    ]
    return all(order == list(range(spatial + 2)) for order in orders)


def _integers(op: mlir.Op, name: str, default: list[int]) -> list[int]:
    return mlir.integers(op.attributes[name]) if name in op.attributes else default


def _padded(op: mlir.Op, spatial: list[int], base: list[int]) -> mlir.Value:
    """The image with zeros around and between its elements."""
    source = op.operands[0]
    pads = mlir.integer_pairs(op, "padding") or [(0, 0)] * len(spatial)
    sizes = mlir.sizes_of(source.type)
    low, high, interior = ([0] * len(sizes) for _ in range(3))
    shape: list[int] = [size or 0 for size in sizes]
    for axis, (before, after), step in zip(spatial, pads, base, strict=True):
        low[axis], high[axis], interior[axis] = before, after, step - 1
        shape[axis] = before + after + (shape[axis] - 1) * step + 1
    if not any([*low, *high, *interior]):
        return source
    scalar = mlir.type_of(f"tensor<{mlir.element_type(source.type)}>")
    number = mlir.attribute(f"dense<0.0> : {scalar}")
    zero = mlir.value("stablehlo.constant", (), scalar, value=number)
    return mlir.value(
        "stablehlo.pad",
        [source, zero],
        _tensor(shape, mlir.element_type(source.type)),
        edge_padding_low=_array(low),
        edge_padding_high=_array(high),
        interior_padding=_array(interior),
    )


def _array(numbers: list[int]) -> mlir.Attribute:
    return mlir.attribute(f"array<i64: {', '.join(map(str, numbers))}>")


def _tensor(sizes: list[int], element: mlir.Type) -> mlir.Type:
    return mlir.type_of(f"tensor<{''.join(f'{size}x' for size in sizes)}{element}>")


def _split(value: mlir.Value, axis: int, groups: int) -> mlir.Value:
    """Axis ``axis`` as groups, and what is in one."""
    sizes = [size or 0 for size in mlir.sizes_of(value.type)]
    split = [*sizes[:axis], groups, sizes[axis] // groups, *sizes[axis + 1 :]]
    return mlir.value("stablehlo.reshape", [value], _tensor(split, mlir.element_type(value.type)))


def _sum(
    op: mlir.Op,
    numbers: mlir.Dimensions,
    split: tuple[int, bool],
    operands: tuple[mlir.Value, mlir.Value],
    steps: tuple[list[int], list[int]],
) -> mlir.Value:
    """Loops over image, group, channel and places, then over input channels and taps.

    ``split`` has the number of groups, and whether they are of the batch instead of the input channels.
    """
    groups, of_batch = split
    spatial = len(numbers["kernel_spatial"])
    positions = [f"d{3 + number}" for number in range(spatial)]
    taps = [f"d{4 + spatial + number}" for number in range(spatial)]
    walked = [
        f"{position} * {stride} + {tap} * {dilation}"
        for position, tap, stride, dilation in zip(positions, taps, *steps, strict=True)
    ]
    channel = f"d{3 + spatial}"
    kind = op.results[0].type
    sizes = [size or 0 for size in mlir.sizes_of(kind)]
    split_at: int = numbers["output_feature"]
    shape = [*sizes[:split_at], groups, sizes[split_at] // groups, *sizes[split_at + 1 :]]
    single, grouped = numbers["input_batch"], numbers["input_feature"]
    named = ("d0", "d1", channel)
    if of_batch:
        single, grouped, named = grouped, single, (channel, "d1", "d0")
    maps = [
        _map(single, grouped, numbers["input_spatial"], named, walked),
        _map(
            numbers["kernel_input_feature"],
            numbers["kernel_output_feature"],
            numbers["kernel_spatial"],
            (channel, "d1", "d2"),
            taps,
        ),
        _map(
            numbers["output_batch"],
            numbers["output_feature"],
            numbers["output_spatial"],
            ("d0", "d1", "d2"),
            positions,
        ),
    ]
    count = 4 + 2 * spatial
    dims = ", ".join(f"d{number}" for number in range(count))
    loops = ["parallel"] * (3 + spatial) + ["reduction"] * (1 + spatial)
    wide = mlir.element_type(kind)

    def add_product(scalars: list[mlir.Value]) -> list[mlir.Value]:
        factors = [scalar if scalar.type == wide else arith.extf(wide, scalar) for scalar in scalars[:2]]
        return [arith.addf(scalars[2], arith.mulf(*factors))]

    empty = mlir.empty_tensor(_tensor(shape, wide))
    rank = len(shape)
    start = identity(rank).partition("->")[0] + "-> ()"
    zero = mlir.float_constant(0, wide)
    filled = build_generic(
        [zero], [empty], [start, identity(rank)], ["parallel"] * rank, lambda scalars: scalars[:1]
    )
    texts = [f"({dims}) -> ({', '.join(results)})" for results in maps]
    summed = build_generic(list(operands), list(filled.results), texts, loops, add_product)
    return mlir.value("stablehlo.reshape", [summed.results[0]], kind)


def _map(
    single: int, grouped: int, spatial: list[int], named: tuple[str, str, str], walked: list[str]
) -> list[str]:
    """Results of a map by axis: the one that is alone, the two of the split one (both ``named``), places."""
    at: dict[int, list[str]] = {single: [named[0]], grouped: [named[1], named[2]]}
    at |= {axis: [walk] for axis, walk in zip(spatial, walked, strict=True)}
    return [value for axis in sorted(at) for value in at[axis]]
