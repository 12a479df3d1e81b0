"""Convolutions with channels last: activations NHWC, weights HWIO, for any number of spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.channels_last.forms import Form, channels_last, plain
from kcache_compiler.passes.bound.channels_last.state import FLOATS, Layouts, Region

#: Channels of an input that stays as it is, at most: to convert it costs more than to read it across rows.
FEW_CHANNELS = 4


def is_movable(op: mlir.Op, bound: set[mlir.Value]) -> bool:
    """Whether ``op`` is a convolution of bound weights whose result has its channels before other axes."""
    if mlir.name_of(op) != "stablehlo.convolution":
        return False
    left, right = op.operands
    if left in bound or right not in bound or mlir.rank_of(left.type) < 3 or not build.is_static(op):
        return False
    if any(str(mlir.element_type(value.type)) not in FLOATS for value in (left, right, op.results[0])):
        return False
    if "batch_group_count" in op.attributes and mlir.int_of(op.attributes["batch_group_count"]) != 1:
        return False
    numbers = mlir.convolution_dimensions(op)
    last = mlir.rank_of(left.type) - 1
    return numbers["output_feature"] != last and numbers["input_feature"] != last


def move(op: mlir.Op, layouts: Layouts, region: Region) -> None:
    """Compute the convolution ``op`` with channels last; an input of few channels is not converted."""
    numbers = mlir.convolution_dimensions(op)
    image, weights = op.operands
    rank = mlir.rank_of(image.type)
    feature, channel = numbers["input_feature"], numbers["output_feature"]
    few = build.static_sizes(image)[feature] <= FEW_CHANNELS and image not in layouts.laid
    before = plain(rank) if few else channels_last(rank, feature)
    after = channels_last(rank, channel)
    value = layouts.tensor(image, before, region)
    spatial = numbers["kernel_spatial"]
    order = [*spatial, numbers["kernel_input_feature"], numbers["kernel_output_feature"]]
    kernel = build.transpose(weights, order)
    inputs = _letters("bf", before, (numbers["input_batch"], feature, *numbers["input_spatial"]))
    outputs = _letters("bf", after, (numbers["output_batch"], channel, *numbers["output_spatial"]))
    taps = ", ".join([*map(str, range(len(spatial))), "i", "o"])
    attributes = mlir.attributes_of(op)
    attributes["dimension_numbers"] = mlir.attribute(f"#stablehlo.conv<[{inputs}]x[{taps}]->[{outputs}]>")
    kind = after.type(op.results[0].type)
    result = mlir.create("stablehlo.convolution", [value, kernel], [kind], attributes).results[0]
    layouts.set(op.results[0], result, after, region)


def _letters(names: str, form: Form, axes: Sequence[int]) -> str:
    """The axes in the order of ``form``, named by ``names`` and then by numbers, as dimension numbers are."""
    named = dict(zip(axes, [*names, *map(str, range(len(axes) - len(names)))], strict=True))
    return ", ".join(named[axis] for axis in sorted(axes, key=lambda axis: form.places[axis]))
