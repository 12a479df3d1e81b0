"""Convolutions of groups of channels: the groups are an axis of their own, also in what is computed next.

StableHLO is lowered so that a convolution of groups reads a reshaped image, and its result is reshaped back.
Padding before the first reshape and elementwise operations after the second one would be launches of their
own: here the image is reshaped before it is padded, and the result behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.spec.graph.operations import ELEMENTWISE


def split_groups(body: mlir.Block) -> bool:
    """Rewrite the convolutions of ``body`` with several channels a group whose channels are last; says
    whether there are any.
    """
    convolutions = [op for op in mlir.operations(body) if _is_grouped(op)]
    for op in convolutions:
        with mlir.before(op), mlir.at_location(op):
            value, result = _split(op)
        op.erase()
        while (reader := _reader(value)) is not None:
            with mlir.before(reader), mlir.at_location(reader):
                value, result = _again(reader, value, result)
            reader.erase()
    return bool(convolutions)


def _is_grouped(op: mlir.Op) -> bool:
    if mlir.name_of(op) != "stablehlo.convolution" or not build.is_static(op):
        return False
    groups = mlir.int_of(op.attributes["feature_group_count"])
    if groups == 1:
        return False
    numbers = mlir.convolution_dimensions(op)
    image, kernel = op.operands
    last = mlir.rank_of(image.type) - 1
    place = numbers["kernel_input_feature"]
    return (
        build.static_sizes(kernel)[place] > 1
        and numbers["input_feature"] == numbers["output_feature"] == numbers["kernel_output_feature"] == last
        and ("lhs_dilation" not in op.attributes or set(mlir.integers(op.attributes["lhs_dilation"])) == {1})
    )


def _split(op: mlir.Op) -> tuple[mlir.Value, mlir.Value]:
    """The convolution with a padded image of split channels: its result, and that with split channels."""
    groups = mlir.int_of(op.attributes["feature_group_count"])
    image, kernel = op.operands
    sizes = build.static_sizes(image)
    attributes = mlir.attributes_of(op)
    padding = mlir.integer_pairs(op, "padding") if "padding" in attributes else []
    if any(number for pair in padding for number in pair):
        numbers = mlir.convolution_dimensions(op)
        low, high = [0] * (len(sizes) + 1), [0] * (len(sizes) + 1)
        for axis, (before, after) in zip(numbers["input_spatial"], padding, strict=True):
            low[axis], high[axis] = before, after
        split = build.reshape(image, [*sizes[:-1], groups, sizes[-1] // groups])
        padded = _padded(split, low, high)
        wide = build.static_sizes(padded)
        image = build.reshape(padded, [*wide[:-2], sizes[-1]])
        del attributes["padding"]
    kind = op.results[0].type
    value = mlir.create("stablehlo.convolution", [image, kernel], [kind], attributes).results[0]
    sizes = build.static_sizes(value)
    result = build.reshape(value, [*sizes[:-1], groups, sizes[-1] // groups])
    merged = mlir.value("stablehlo.reshape", [result], kind)
    op.results[0].replace_all_uses_with(merged)
    return merged, result


def _padded(value: mlir.Value, low: Sequence[int], high: Sequence[int]) -> mlir.Value:
    """``value`` with this many zeros before and after each axis."""
    element = mlir.element_type(value.type)
    sizes = [sum(each) for each in zip(build.static_sizes(value), low, high, strict=True)]
    zero = build.splat(0, build.tensor_type([], element))
    return mlir.value(
        "stablehlo.pad",
        [value, zero],
        build.tensor_type(sizes, element),
        edge_padding_low=build.int_array(low),
        edge_padding_high=build.int_array(high),
        interior_padding=build.int_array([0] * len(sizes)),
    )


def _reader(value: mlir.Value) -> mlir.Op | None:
    """The elementwise operation, or reshape of other axes than channels, that alone reads ``value``."""
    readers = list(mlir.uses(value))
    if len(readers) != 1:
        return None
    reader = readers[0][0]
    if not build.is_static(reader) or len(reader.results) != 1:
        return None
    before, after = build.static_sizes(value), build.static_sizes(reader.results[0])
    if mlir.name_of(reader) == "stablehlo.reshape":
        return reader if after[-1:] == before[-1:] else None
    return reader if mlir.name_of(reader) in ELEMENTWISE and after == before else None


def _again(op: mlir.Op, value: mlir.Value, split: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
    """``op``, which reads ``value``, on ``split`` channels: its result, and that with split channels."""
    kind = op.results[0].type
    sizes = [*build.static_sizes(op.results[0])[:-1], *build.static_sizes(split)[-2:]]
    if mlir.name_of(op) == "stablehlo.reshape":
        result = build.reshape(split, sizes)
    else:
        rank = mlir.rank_of(kind)
        operands = [
            split if each == value else _with_groups(each, sizes) if mlir.rank_of(each.type) == rank else each
            for each in op.operands
        ]
        split_kind = build.tensor_type(sizes, mlir.element_type(kind))
        result = mlir.value(mlir.name_of(op), operands, split_kind, **mlir.attributes_of(op))
    merged = mlir.value("stablehlo.reshape", [result], kind)
    op.results[0].replace_all_uses_with(merged)
    return merged, result


def _with_groups(value: mlir.Value, sizes: Sequence[int]) -> mlir.Value:
    """``value`` with its last axis as two, to have ``sizes``; constants and broadcasts are made anew."""
    owner = mlir.defining(value)
    name = "" if owner is None else mlir.name_of(owner)
    if owner is not None and name == "stablehlo.constant" and mlir.constant_extent(owner)[0]:
        return build.broadcast(mlir.splat_scalar(owner), sizes, [])
    if owner is not None and name == "stablehlo.broadcast_in_dim":
        source, dims = owner.operands[0], mlir.integers(owner.attributes["broadcast_dimensions"])
        last, extents = len(sizes) - 2, build.static_sizes(source)
        if dims and dims[-1] == last:
            whole = extents[-1] == sizes[-2] * sizes[-1]
            parts = list(sizes[-2:]) if whole else [1, 1]
            return build.broadcast(build.reshape(source, [*extents[:-1], *parts]), sizes, [*dims, last + 1])
        if last not in dims:
            return build.broadcast(source, sizes, dims)
    return build.reshape(value, sizes)
