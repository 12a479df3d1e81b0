"""Shape inference of convolutions, also with padding that is computed from sizes."""

from __future__ import annotations

import re

from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.shape_functions import convolution_shape, padded_size
from kcache_compiler.spec.graph.nodes import Node, Ref
from kcache_compiler.spec.shape_inference.context import NodeContext
from kcache_compiler.spec.shape_inference.generic import infer_plain

#: Elements that are added to computed padding of bounded size, and cut off again.
_EXTRA_PADDING = 64
_LHS_DILATION = re.compile(r"lhs_dilation = array<i64: [^>]*>(, )?")
_PAD = ("edge_padding_high", "edge_padding_low", "interior_padding")
_SLICE = ("start_indices", "limit_indices", "strides")
Padding = list[tuple[Formula, Formula]]


def infer_convolution(context: NodeContext) -> list[Ref]:
    """Infer a convolution with static padding."""
    _require_groups(context)
    return infer_plain(context)


def infer_dynamic_conv(context: NodeContext) -> list[Ref]:
    """Return a ``convolution``; if some padding is symbolic, of an input that is padded before."""
    flat = context.elements(2)
    _require_groups(context)
    padding = list(zip(flat[::2], flat[1::2], strict=True))
    attributes = context.node.attributes
    if not all(isinstance(size, int) for size in flat):
        padding = _pad_input(context, padding)
        attributes = _LHS_DILATION.sub("", attributes).removesuffix(", ")
        context.node = context.node._replace(attributes=attributes)
    dims = convolution_shape(context.shapes(context.operand_dims()[:2]), padding)
    text = f"{attributes}, padding = {context.size_pairs(padding)}"
    operands = tuple(context.operands[:2])
    return context.add(Node("convolution", text, operands, (), context.result_types([dims])))


def _require_groups(context: NodeContext) -> None:
    """Require that groups divide batches, features and output features."""
    shapes = context.shapes()
    image, kernel, _ = shapes.labels()
    features, batches = (shapes.number(f"{name}_group_count", 1) for name in ("feature", "batch"))
    inputs = dict(zip(image, context.dims(0), strict=True))
    weights = dict(zip(kernel, context.dims(1), strict=True))
    divided = (
        (inputs["b"], batches),
        (inputs["f"], features),
        (weights["o"], features),
        (weights["o"], batches),
    )
    symbols = context.symbols
    for size, groups in divided:
        if groups != 1:
            remainder = symbols.apply("%", symbols.formula(size), groups)
            context.requirements.require(remainder, 0, equal=True)
    total = symbols.apply("*", symbols.formula(weights["i"]), features)
    context.requirements.require(total, symbols.formula(inputs["f"]), equal=True)


def _pad_input(context: NodeContext, padding: Padding) -> Padding:
    """Pad and dilate the input, operand 0; return the padding that is left to the convolution.

    Code for padding of a few elements, or none, differs from code for more: padding of bounded size is made
    larger, and the additional elements are cut off.
    """
    symbols, shapes = context.symbols, context.shapes()
    image = shapes.labels()[0]
    dilations = shapes.ints("lhs_dilation", len(padding), 1)
    symbolic = {
        str(axis): row for axis, row in enumerate(padding) if not all(isinstance(size, int) for size in row)
    }
    gaps = {str(axis): dilation - 1 for axis, dilation in enumerate(dilations)}
    low, high = ([symbolic.get(label, (0, 0))[side] for label in image] for side in (0, 1))
    interior: list[Formula] = [gaps.get(label, 0) for label in image]
    for size in (*low, *high):
        context.requirements.require(0, size, equal=False)
    rows = zip(context.dims(0), low, high, interior, strict=True)
    dims = [padded_size(symbols, *row) for row in rows]
    is_bounded = any(
        symbols.range(symbols.without_remainders(size))[1] is not None
        for size in (*low, *high)
        if not isinstance(size, int)
    )
    extra = [_EXTRA_PADDING if is_bounded and label in symbolic else 0 for label in image]
    low, high = (
        [symbols.apply("+", size, more) for size, more in zip(side, extra, strict=True)]
        for side in (low, high)
    )
    ends = [symbols.apply("+", symbols.formula(size), more) for size, more in zip(dims, extra, strict=True)]
    rows = zip(context.dims(0), low, high, interior, strict=True)
    kind = context.block.viewed(context.operands[0])
    padded_kind = kind._replace(dims=tuple(padded_size(symbols, *row) for row in rows))
    text = context.size_lists(_PAD, (high, low, interior))
    operands = (context.operands[0], context.zero(kind.element))
    padded = context.add(Node("pad", text, operands, (), (padded_kind,)))
    text = context.size_lists(_SLICE, (extra, ends, [1] * len(extra)))
    cut = Node("slice", text, tuple(padded), (), (kind._replace(dims=tuple(dims)),))
    (context.operands[0],) = context.add(cut)
    return [(0, 0) if str(axis) in symbolic else row for axis, row in enumerate(padding)]
