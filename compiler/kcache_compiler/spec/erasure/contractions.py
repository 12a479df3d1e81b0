"""Shape rules of contractions, convolutions, windows and linear algebra."""

from __future__ import annotations

from kcache_compiler.mlir.context import native_stablehlo
from kcache_compiler.spec.erasure.operation_dims import OperationDims, pinned
from kcache_compiler.spec.graph.native import boolean, integer, integers, string
from kcache_compiler.spec.graph.nodes import DYNAMIC


def dot_general(op: OperationDims) -> None:
    """Constrain batching and contracting dims of both operands, and all other dims with the result."""
    n = native_stablehlo().DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    _contract(
        op,
        (list(n.lhs_batching_dimensions), list(n.rhs_batching_dimensions)),
        (list(n.lhs_contracting_dimensions), list(n.rhs_contracting_dimensions)),
    )


def dot(op: OperationDims) -> None:
    """Contract the last dim of the left operand with the first of the right one."""
    _contract(op, ([], []), ([len(op.operands[0]) - 1], [0]))


def _contract(
    op: OperationDims, batching: tuple[list[int], list[int]], contracting: tuple[list[int], list[int]]
) -> None:
    lhs, rhs = op.operands
    for a, b in (*zip(*batching, strict=True), *zip(*contracting, strict=True)):
        op.same(lhs[a], rhs[b])
    free = [
        [d for d in range(len(dims)) if d not in batching[i] and d not in contracting[i]]
        for i, dims in enumerate((lhs, rhs))
    ]
    sources = [
        *((0, d) for d in batching[0]),
        *((0, d) for d in free[0]),
        *((1, d) for d in free[1]),
    ]
    (result,) = op.results
    op.match(tuple(op.operands[i][d] for i, d in sources), result)
    if op.plain:
        uniform = {position for position, (i, d) in enumerate(sources) if d in op.uniform_in[i]}
        uniform -= {position for position, d in enumerate(batching[1]) if d not in op.uniform_in[1]}
        op.uniform_out = [frozenset(uniform)]


def einsum(op: OperationDims) -> None:
    """Constrain dims of one label; pin all dims of an equation with an ellipsis."""
    if "." in string(op.attributes, "einsum_config"):
        pinned(op)
        return
    inputs, _, result = string(op.attributes, "einsum_config").replace(" ", "").partition("->")
    dims_of: dict[str, int] = {}
    for term, dims in zip([*inputs.split(","), result], [*op.operands, *op.results], strict=True):
        for label, dim in zip(term, dims, strict=True):
            op.same(dims_of.setdefault(label, dim), dim)


def convolution(op: OperationDims) -> None:
    """Constrain batch and feature dims without groups, and spatial dims that padding keeps."""
    n = native_stablehlo().ConvDimensionNumbers(op.attributes["dimension_numbers"])
    (image, kernel), (result,) = op.operands, op.results
    grouped = integer(op.attributes, "feature_group_count") != 1
    batched = integer(op.attributes, "batch_group_count") != 1
    pairs = [
        (image[int(n.input_batch_dimension)], result[int(n.output_batch_dimension)], batched),
        (image[int(n.input_feature_dimension)], kernel[int(n.kernel_input_feature_dimension)], grouped),
        (
            kernel[int(n.kernel_output_feature_dimension)],
            result[int(n.output_feature_dimension)],
            grouped or batched,
        ),
    ]
    for a, b, fixed in pairs:
        if fixed:
            op.pin((a, b))
        else:
            op.same(a, b)
    spatial: zip[tuple[int, int, int]] = zip(
        n.input_spatial_dimensions, n.kernel_spatial_dimensions, n.output_spatial_dimensions, strict=True
    )
    strides, dilation = op.ints("window_strides"), op.ints("lhs_dilation")
    for i, (source, window, target) in enumerate(spatial):
        op.pin((kernel[window],))
        sliding = (not strides or strides[i] == 1) and (not dilation or dilation[i] == 1)
        if sliding and op.size(image[source]) != DYNAMIC:
            op.same_or_pinned(image[source], result[target])
        else:
            op.pin((image[source], result[target]))


def reduce_window(op: OperationDims) -> None:
    """Constrain dims without windows, and dims whose length windows of static size keep."""
    half = len(op.operands) // 2
    window = op.ints("window_dimensions")
    strides, dilations = op.ints("window_strides"), op.ints("base_dilations")
    for dims in op.operands[:half]:
        op.match(op.operands[0], dims)
    padding = [tuple(int(p) for p in row) for row in _pairs(op, "padding", len(window))]
    for result in op.results:
        for d, (a, b) in enumerate(zip(op.operands[0], result, strict=True)):
            sliding = (not strides or strides[d] == 1) and (not dilations or dilations[d] == 1)
            edge = window[d] - 1
            running = window[d] == op.size(a) and padding[d] in ((edge, 0), (0, edge))
            if sliding and not running:
                op.same_or_pinned(a, b)
            else:
                op.pin((a, b))


def _pairs(op: OperationDims, name: str, count: int) -> list[tuple[int, int]]:
    """Return an attribute of pairs of integers; zeros if it is absent."""
    if name not in op.attributes:
        return [(0, 0)] * count
    flat = integers(op.attributes, name)
    return list(zip(flat[::2], flat[1::2], strict=True))


def select_and_scatter(op: OperationDims) -> None:
    """Constrain the result to the operand, and the source along dims without windows."""
    operand, source, (result,) = op.operands[0], op.operands[1], op.results
    op.match(operand, result)
    window, strides = op.ints("window_dimensions"), op.ints("window_strides")
    for d, (a, b) in enumerate(zip(operand, source, strict=True)):
        if (not window or window[d] == 1) and (not strides or strides[d] == 1):
            op.same_or_pinned(a, b)
        else:
            op.pin((a, b))


def cholesky(op: OperationDims) -> None:
    """Constrain the result to the operand, whose matrices are square."""
    (operand,), (result,) = op.operands, op.results
    op.match(operand, result)
    op.same(operand[-1], operand[-2])


def triangular_solve(op: OperationDims) -> None:
    """Constrain square matrices to the right-hand sides, on the side that the attribute says."""
    (a, b), (result,) = op.operands, op.results
    op.match(b, result)
    op.match(a[:-2], b[:-2])
    op.same(a[-1], a[-2])
    left = boolean(op.attributes, "left_side") if "left_side" in op.attributes else True
    op.same(a[-1], b[-2] if left else b[-1])


def fft(op: OperationDims) -> None:
    """Constrain dims that are not transformed; pin the others."""
    (operand,), (result,) = op.operands, op.results
    batch = len(operand) - len(op.ints("fft_length"))
    op.match(operand[:batch], result[:batch])
    op.pin(operand[batch:], result[batch:])


def batch_norm(op: OperationDims) -> None:
    """Constrain vectors to the feature dim, and tensors to one shape."""
    feature: int = integer(op.attributes, "feature_index")
    first = op.operands[0]
    for dims in (*op.operands, *op.results):
        if len(dims) == 1:
            op.same(dims[0], first[feature])
        else:
            op.match(dims, first)
