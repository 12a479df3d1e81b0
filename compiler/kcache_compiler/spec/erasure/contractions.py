"""Shape rules of contractions, convolutions, windows, and linear algebra."""

from __future__ import annotations

from kcache_compiler.mlir.context import native_stablehlo
from kcache_compiler.spec.erasure.step import Step, pinned
from kcache_compiler.spec.graph.nodes import DYNAMIC


def dot_general(step: Step) -> None:
    """Batching and contracting dims agree; the others are the result's."""
    n = native_stablehlo().DotDimensionNumbers(step.attributes["dot_dimension_numbers"])
    _contract(
        step,
        (list(n.lhs_batching_dimensions), list(n.rhs_batching_dimensions)),
        (list(n.lhs_contracting_dimensions), list(n.rhs_contracting_dimensions)),
    )


def dot(step: Step) -> None:
    """The last dim of the left with the first of the right."""
    _contract(step, ([], []), ([len(step.operands[0]) - 1], [0]))


def _contract(
    step: Step, batching: tuple[list[int], list[int]], contracting: tuple[list[int], list[int]]
) -> None:
    lhs, rhs = step.operands
    for a, b in (*zip(*batching, strict=True), *zip(*contracting, strict=True)):
        step.same(lhs[a], rhs[b])
    free = [
        [d for d in range(len(dims)) if d not in batching[i] and d not in contracting[i]]
        for i, dims in enumerate((lhs, rhs))
    ]
    places = [
        *((0, d) for d in batching[0]),
        *((0, d) for d in free[0]),
        *((1, d) for d in free[1]),
    ]
    (result,) = step.results
    step.match(tuple(step.operands[i][d] for i, d in places), result)
    if step.plain:
        loose = {at for at, (i, d) in enumerate(places) if d in step.loose_in[i]}
        loose -= {at for at, d in enumerate(batching[1]) if d not in step.loose_in[1]}
        step.loose_out = [frozenset(loose)]


def einsum(step: Step) -> None:
    """Dims of one letter agree; where there are dims without letters, all keep their sizes."""
    if "." in step.attributes["einsum_config"].value:
        pinned(step)
        return
    given, _, result = step.attributes["einsum_config"].value.replace(" ", "").partition("->")
    letters: dict[str, int] = {}
    for term, dims in zip([*given.split(","), result], [*step.operands, *step.results], strict=True):
        for letter, dim in zip(term, dims, strict=True):
            step.same(letters.setdefault(letter, dim), dim)


def convolution(step: Step) -> None:
    """Batch and features agree where nothing is grouped; spatial dims agree where the padding keeps them."""
    n = native_stablehlo().ConvDimensionNumbers(step.attributes["dimension_numbers"])
    (image, kernel), (result,) = step.operands, step.results
    grouped = step.attributes["feature_group_count"].value != 1
    batched = step.attributes["batch_group_count"].value != 1
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
            step.pin((a, b))
        else:
            step.same(a, b)
    spatial: zip[tuple[int, int, int]] = zip(
        n.input_spatial_dimensions, n.kernel_spatial_dimensions, n.output_spatial_dimensions, strict=True
    )
    strides, dilation = step.ints("window_strides"), step.ints("lhs_dilation")
    for i, (at, of, to) in enumerate(spatial):
        step.pin((kernel[of],))
        sliding = (not strides or strides[i] == 1) and (not dilation or dilation[i] == 1)
        if sliding and step.solver.size(image[at]) != DYNAMIC:
            step.same_or_pinned(image[at], result[to])
        else:
            step.pin((image[at], result[to]))


def reduce_window(step: Step) -> None:
    """Dims over which no window slides agree, and those that windows of fixed sizes leave as long."""
    half = len(step.operands) // 2
    window = step.ints("window_dimensions")
    strides, dilations = step.ints("window_strides"), step.ints("base_dilations")
    for dims in step.operands[:half]:
        step.match(step.operands[0], dims)
    padding = [tuple(int(p) for p in row) for row in _rows(step, "padding", len(window))]
    for result in step.results:
        for d, (a, b) in enumerate(zip(step.operands[0], result, strict=True)):
            sliding = (not strides or strides[d] == 1) and (not dilations or dilations[d] == 1)
            edge = window[d] - 1
            running = window[d] == step.solver.size(a) and padding[d] in ((edge, 0), (0, edge))
            if sliding and not running:
                step.same_or_pinned(a, b)
            else:
                step.pin((a, b))


def _rows(step: Step, name: str, count: int) -> list[tuple[int, int]]:
    """Return an attribute that is pairs of integers; zeros when it is absent."""
    if name not in step.attributes:
        return [(0, 0)] * count
    flat = [int(value) for value in step.attributes[name]]
    return list(zip(flat[::2], flat[1::2], strict=True))


def select_and_scatter(step: Step) -> None:
    """The result has the operand's shape; the source is what its windows leave."""
    operand, source, (result,) = step.operands[0], step.operands[1], step.results
    step.match(operand, result)
    window, strides = step.ints("window_dimensions"), step.ints("window_strides")
    for d, (a, b) in enumerate(zip(operand, source, strict=True)):
        if (not window or window[d] == 1) and (not strides or strides[d] == 1):
            step.same_or_pinned(a, b)
        else:
            step.pin((a, b))


def cholesky(step: Step) -> None:
    """A stack of square matrices."""
    (operand,), (result,) = step.operands, step.results
    step.match(operand, result)
    step.same(operand[-1], operand[-2])


def triangular_solve(step: Step) -> None:
    """A stack of square matrices beside a stack of right sides, on the side that the attribute says."""
    (a, b), (result,) = step.operands, step.results
    step.match(b, result)
    step.match(a[:-2], b[:-2])
    step.same(a[-1], a[-2])
    left = step.attributes["left_side"].value if "left_side" in step.attributes else True
    step.same(a[-1], b[-2] if left else b[-1])


def fft(step: Step) -> None:
    """Dims that are not transformed agree; the others keep their sizes."""
    (operand,), (result,) = step.operands, step.results
    batch = len(operand) - len(step.ints("fft_length"))
    step.match(operand[:batch], result[:batch])
    step.pin(operand[batch:], result[batch:])


def batch_norm(step: Step) -> None:
    """Vectors have the size of the feature dim; tensors have one shape."""
    feature: int = step.attributes["feature_index"].value
    first = step.operands[0]
    for dims in (*step.operands, *step.results):
        if len(dims) == 1:
            step.same(dims[0], first[feature])
        else:
            step.match(dims, first)
