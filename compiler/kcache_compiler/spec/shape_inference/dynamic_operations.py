"""Shape inference of StableHLO operations that compute sizes, take sizes as operands, or relate them."""

from __future__ import annotations

from kcache_compiler.shapes.formula import Formula, UnresolvedSize
from kcache_compiler.shapes.monomial import is_symbolic, size_text
from kcache_compiler.shapes.shape_functions import Dims, gather_shape, padded_size, window_count
from kcache_compiler.spec.graph.nodes import Node, Ref, broadcast_in_dim
from kcache_compiler.spec.shape_inference.context import NodeContext
from kcache_compiler.spec.shape_inference.generic import infer_plain


def infer_get_dimension_size(context: NodeContext) -> list[Ref]:
    """Return a constant or an extent, whose value is known."""
    size = context.dims(0)[context.shapes().number("dimension")]
    if is_symbolic(size):
        node = Node("extent", size_text(size), (), (), context.node.results)
    else:
        node = Node("constant", size.to_bytes(4, "little").hex(), (), (), context.node.results)
    return context.record(context.add(node), [context.symbols.formula(size)])


def infer_concatenate(context: NodeContext) -> list[Ref]:
    """Infer a concatenation; elements along axis 0 are known if all operands' are."""
    known = [context.block.elements(ref) for ref in context.operands]
    refs = infer_plain(context)
    axis = context.shapes().number("dimension")
    if axis or not context.dims(0) or any(elements is None for elements in known):
        return refs
    return context.record(refs, [element for elements in known for element in elements or ()])


def infer_reshape(context: NodeContext) -> list[Ref]:
    """Infer a reshape to stated sizes, which keeps known elements."""
    known = context.block.elements(context.operands[0])
    return context.record(_reshape(context, context.evaluate(context.node.results[0].dims or ())), known)


def infer_dynamic_reshape(context: NodeContext) -> list[Ref]:
    """Return a ``reshape`` to the sizes of the second operand."""
    return _reshape(context, context.sizes(1))


def _reshape(context: NodeContext, dims: Dims) -> list[Ref]:
    (kind,) = context.result_types([dims])
    old, new = (_element_count(context, shape) for shape in (context.dims(0), dims))
    context.requirements.require(old, new, equal=True)
    return context.add(Node("reshape", "", (context.operands[0],), (), (kind,)))


def _element_count(context: NodeContext, dims: Dims) -> Formula:
    total: Formula = 1
    for size in dims:
        total = context.symbols.apply("*", total, context.symbols.formula(size))
    return total


def infer_dynamic_broadcast_in_dim(context: NodeContext) -> list[Ref]:
    """Return a view; an axis of symbolic size is expanded only if it is known to be 1."""
    dims = context.sizes(1)
    (kind,) = context.result_types([dims])
    axes = context.shapes().ints("broadcast_dimensions")
    source = context.operands[0]
    for axis, target in enumerate(axes):
        size = context.dims(0)[axis]
        if size not in (1, dims[target]):
            if context.symbols.range(context.symbols.formula(size))[0] < 2:
                raise UnresolvedSize("an axis that may be expanded")
            context.require_equal(size, dims[target])
    return [source._replace(view=broadcast_in_dim(source.view, tuple(axes), kind.dims or ()))]


def infer_dynamic_iota(context: NodeContext) -> list[Ref]:
    """Return an ``iota`` of one axis, broadcast."""
    dims = context.sizes(0)
    (kind,) = context.result_types([dims])
    axis = context.shapes().number("iota_dimension")
    (vector,) = context.add(Node("iota", "", (), (), (kind._replace(dims=(dims[axis],)),)))
    return [vector._replace(view=broadcast_in_dim(vector.view, (axis,), dims))]


def infer_dynamic_pad(context: NodeContext) -> list[Ref]:
    """Return a ``pad`` with symbolic padding."""
    padding = [context.elements(position) for position in (2, 3, 4)]
    rows = zip(context.dims(0), *padding, strict=True)
    sizes = tuple(padded_size(context.symbols, *row) for row in rows)
    text = context.size_lists(("edge_padding_low", "edge_padding_high", "interior_padding"), padding)
    return context.add(Node("pad", text, tuple(context.operands[:2]), (), context.result_types([sizes])))


def infer_dynamic_gather(context: NodeContext) -> list[Ref]:
    """Return a ``gather`` with symbolic slice sizes, which must not exceed the operand's."""
    slices = context.sizes(2)
    operand, indices = context.dims(0), context.dims(1)
    for part, size in zip(slices, operand, strict=True):
        formulas = (context.symbols.formula(part), context.symbols.formula(size))
        context.requirements.require(*formulas, equal=False)
    shapes = context.shapes([operand, indices])
    batching = shapes.ints("operand_batching_dims"), shapes.ints("start_indices_batching_dims")
    for operand_axis, index_axis in zip(*batching, strict=True):
        if operand[operand_axis] != indices[index_axis]:
            context.require_equal(operand[operand_axis], indices[index_axis])
    dims = gather_shape(shapes, slices)
    text = f"{context.node.attributes}, slice_sizes = array<i64: {', '.join(map(size_text, slices))}>"
    return context.add(Node("gather", text, tuple(context.operands[:2]), (), context.result_types([dims])))


def infer_fft(context: NodeContext) -> list[Ref]:
    """Require that the transformed axes have the stated lengths."""
    lengths = context.shapes().ints("fft_length")
    if "IRFFT" in context.node.attributes and lengths:
        lengths[-1] = lengths[-1] // 2 + 1
    dims = context.dims(0)
    for size, length in zip(dims[len(dims) - len(lengths) :], lengths, strict=True):
        if size != length:
            context.require_equal(size, length)
    return infer_plain(context)


def infer_einsum(context: NodeContext) -> list[Ref]:
    """Require that each label has one size."""
    sizes: dict[str, int] = {}
    for position, labels in enumerate(context.shapes().einsum_labels()[:-1]):
        for label, size in zip(labels, context.dims(position), strict=True):
            if sizes.setdefault(label, size) != size:
                context.require_equal(sizes[label], size)
    return infer_plain(context)


def infer_select_and_scatter(context: NodeContext) -> list[Ref]:
    """Require a source element for each window."""
    operand, source = context.dims(0), context.dims(1)
    shapes = context.shapes([operand, source])
    rank = len(operand)
    strides, windows = shapes.ints("window_strides", rank, 1), shapes.ints("window_dimensions", rank, 1)
    rows = zip(operand, source, windows, strides, shapes.pairs("padding", rank), strict=True)
    for size, elements, window, stride, padding in rows:
        count = window_count(
            context.symbols, size, window, stride, (1, 1), padding, context.unclamped_windows
        )
        context.require_equal(count, elements)
    return infer_plain(context)
