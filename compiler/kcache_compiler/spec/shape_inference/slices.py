"""Shape inference of slices and updates of symbolic size.

Sampled sizes are large. An axis of small static size from which a symbolic part is taken is padded by the
part, so that every sample has it; a result of static size is the first elements of the padded one. That the
part fits is checked when the kernel is called.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.shapes.formula import Formula, UnresolvedSize
from kcache_compiler.shapes.monomial import is_symbolic, size_text
from kcache_compiler.shapes.shape_functions import Dims
from kcache_compiler.spec.graph.nodes import DYNAMIC, Node, Ref, ValueType
from kcache_compiler.spec.shape_inference.context import SCALAR, NodeContext
from kcache_compiler.spec.shape_inference.generic import infer_plain

#: Static sizes below this may be smaller than a sampled size.
_MIN_UNPADDED = 256
_SLICE = ("start_indices", "limit_indices", "strides")


def infer_slice(context: NodeContext) -> list[Ref]:
    """Keep a static slice; elements of a vector are sliced."""
    known = context.block.elements(context.operands[0])
    refs = infer_plain(context)
    if known is None or len(context.dims(0)) != 1:
        return refs
    start, limit, stride = (context.shapes().ints(name)[0] for name in _SLICE)
    return context.record(refs, known[start:limit:stride])


def infer_real_dynamic_slice(context: NodeContext) -> list[Ref]:
    """Return a ``slice`` if starts are made of sizes, else a ``dynamic_slice``."""
    if context.block.elements(context.operands[1]) is None:
        return _slice_at_data(context)
    starts, limits, strides = (context.elements(position) for position in (1, 2, 3))
    sizes: list[int] = []
    a = context.symbols.apply
    source = context.operands[0]
    for axis, (start, limit, stride) in enumerate(zip(starts, limits, strides, strict=True)):
        if not isinstance(stride, int) or stride < 1:
            raise UnresolvedSize("a symbolic stride")
        context.requirements.require(0, start, equal=False)
        context.requirements.require(start, limit, equal=False)
        source = _pad_to_fit(context, source, axis, limit)
        sizes.append(context.symbols.size(a("ceildiv", a("-", limit, start), stride)))
    text = context.size_lists(_SLICE, (starts, limits, strides))
    return context.add(Node("slice", text, (source,), (), context.result_types([tuple(sizes)])))


def _slice_at_data(context: NodeContext) -> list[Ref]:
    """A slice whose starts depend on data, and whose limits are the starts plus sizes that do not."""
    start, limit = context.operands[1:3]
    node, rank = context.block.defining_node(limit), len(context.dims(0))
    if node is None or node.op != "add" or (rank > 1 and min(limit.view) < 0):
        raise UnresolvedSize("a slice of sizes that depend on data")
    others = [ref for ref in node.operands if not _is_same_vector(ref, start, rank)]
    lengths = context.block.elements(others[0]) if len(others) == 1 else None
    if lengths is None or context.elements(3) != [1] * len(lengths):
        raise UnresolvedSize("a slice of sizes that depend on data")
    element = context.block.viewed(start).element
    scalars: list[Ref] = []
    for axis in range(len(lengths)):
        text = f"start_indices = array<i64: {axis}>, limit_indices = array<i64: {axis + 1}>"
        text += ", strides = array<i64: 1>"
        (index,) = context.add(Node("slice", text, (start,), (), (ValueType(element, (1,)),)))
        scalars += context.add(Node("reshape", "", (index,), (), (ValueType(element, ()),)))
    return _dynamic_slice(context, context.operands[0], scalars, tuple(map(context.symbols.size, lengths)))


def infer_dynamic_slice(context: NodeContext) -> list[Ref]:
    """Infer a slice of stated size whose starts are clamped."""
    sizes = context.evaluate(context.shapes().sizes("slice_sizes"))
    return _dynamic_slice(context, context.operands[0], context.operands[1:], sizes)


def _dynamic_slice(context: NodeContext, source: Ref, starts: Sequence[Ref], sizes: Dims) -> list[Ref]:
    starts = list(starts)
    for axis, size in enumerate(sizes):
        starts[axis] = _clamp_start(context, source, axis, size, starts[axis])
        source = _pad_to_fit(context, source, axis, context.symbols.formula(size))
    text = f"slice_sizes = array<i64{':' if sizes else ''} {', '.join(map(size_text, sizes))}>"
    return context.add(Node("dynamic_slice", text, (source, *starts), (), context.result_types([sizes])))


def infer_dynamic_update_slice(context: NodeContext) -> list[Ref]:
    """Infer an update, in an operand that is padded if the update may not fit."""
    source, update, *starts = context.operands
    dims, sizes = context.dims(0), context.dims(1)
    for axis, size in enumerate(sizes):
        starts[axis] = _clamp_start(context, source, axis, size, starts[axis])
        source = _pad_to_fit(context, source, axis, context.symbols.formula(size))
    if source == context.operands[0]:
        return infer_plain(context)
    kind = ValueType(context.node.results[0].element, context.block.viewed(source).dims)
    (updated,) = context.add(Node("dynamic_update_slice", "", (source, update, *starts), (), (kind,)))
    return [context.slice_to(updated, dims, kind.element)]


def infer_set_dimension_size(context: NodeContext) -> list[Ref]:
    """Return the first elements of an axis, as many as the second operand says."""
    axis = context.shapes().number("dimension")
    (length,) = context.elements(1)
    context.requirements.require(0, length, equal=False)
    source, dims = _pad_to_fit(context, context.operands[0], axis, length), list(context.dims(0))
    dims[axis] = context.symbols.size(length)
    starts, strides = (context.size_list([value] * len(dims)) for value in (0, 1))
    text = f"start_indices = {starts}, limit_indices = array<i64: {', '.join(map(size_text, dims))}>"
    text += f", strides = {strides}"
    return context.add(Node("slice", text, (source,), (), context.result_types([tuple(dims)])))


def _may_be_too_short(context: NodeContext, source: Ref, axis: int, part: Formula) -> bool:
    """Whether an axis of static size may be shorter than a sample of ``part``."""
    size = (context.block.viewed(source).dims or ())[axis]
    return 0 <= size < _MIN_UNPADDED and not is_symbolic(size) and context.symbols.range(part)[1] is None


def _pad_to_fit(context: NodeContext, source: Ref, axis: int, part: Formula) -> Ref:
    """``source``, padded by ``part`` along an axis that may be too short; ``part`` must fit the axis."""
    kind = context.block.viewed(source)
    dims = list(kind.dims or ())
    if not _may_be_too_short(context, source, axis, part):
        context.requirements.require(part, context.symbols.formula(dims[axis]), equal=False)
        return source
    context.requirements.require_at_run_time(part, dims[axis], equal=False)
    filler = context.zero(kind.element)
    zeros: list[Formula] = [0] * len(dims)
    high: list[Formula] = [part if position == axis else 0 for position in range(len(dims))]
    names = ("edge_padding_high", "edge_padding_low", "interior_padding")
    text = context.size_lists(names, (high, zeros, zeros))
    dims[axis] = context.symbols.size(context.symbols.apply("+", dims[axis], part))
    return context.add(Node("pad", text, (source, filler), (), (kind._replace(dims=tuple(dims)),)))[0]


def _clamp_start(context: NodeContext, source: Ref, axis: int, size: int, start: Ref) -> Ref:
    """The start of a part of ``size``, clamped to the axis as it is before ``_pad_to_fit`` pads it."""
    if not _may_be_too_short(context, source, axis, context.symbols.formula(size)):
        return start
    length = (context.block.viewed(source).dims or ())[axis]
    element = context.block.viewed(start).element
    if length >= 1 << 7:
        raise UnresolvedSize("a part of an axis whose size an index type may not hold")
    kind = ValueType(element, ())
    last = context.constant(length, element)
    (start,) = context.add(Node("minimum", "", (start, last), (), (kind,)))
    (start,) = context.add(Node("maximum", "", (start, context.constant(0, element)), (), (kind,)))
    (start,) = context.add(Node("convert", "", (start,), (), (SCALAR,)))
    (extent,) = context.add(Node("extent", size_text(size), (), (), (SCALAR,)))
    (free,) = context.add(Node("subtract", "", (context.constant(length, "i64"), extent), (), (SCALAR,)))
    return context.add(Node("minimum", "", (start, free), (), (SCALAR,)))[0]


def cut_to_stated_sizes(context: NodeContext, refs: Sequence[Ref]) -> list[Ref]:
    """Return the results, cut to the first elements along axes whose static size the program states."""
    results: list[Ref] = []
    for ref, kind in zip(refs, context.node.results, strict=True):
        dims = context.block.viewed(ref).dims or ()
        stated = tuple(
            size if own == DYNAMIC or is_symbolic(own) or not is_symbolic(size) else own
            for own, size in zip(kind.dims or (), dims, strict=True)
        )
        results.append(ref if stated == dims else context.slice_to(ref, stated, kind.element))
    return results


def _is_same_vector(left: Ref, right: Ref, count: int) -> bool:
    """Whether two values of ``count`` elements are the same; a single element is so in every view."""
    return left == right or (count == 1 and (left.node, left.result) == (right.node, right.result))
