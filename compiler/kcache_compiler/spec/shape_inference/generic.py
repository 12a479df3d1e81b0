"""Shape inference of operations that neither compute sizes nor take them as operands, and of CHLO's
elementwise operations with implicit broadcasting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from kcache_compiler.shapes.arithmetic import MAX_ELEMENTS, read_constant
from kcache_compiler.shapes.formula import UnresolvedSize
from kcache_compiler.shapes.monomial import is_symbolic, read_size, size_text
from kcache_compiler.shapes.shape_functions import SHAPE_FUNCTIONS, Dims, result_shapes
from kcache_compiler.spec.graph.nodes import DYNAMIC, Node, Ref, Region, broadcast_in_dim, spread, spread_size
from kcache_compiler.spec.graph.operations import ELEMENTWISE, is_elementwise, is_structured
from kcache_compiler.spec.rendering.stablehlo import split_captures
from kcache_compiler.spec.shape_inference.context import NodeContext

#: Elementwise operations of which ``shapes.arithmetic`` computes elements.
_ARITHMETIC = frozenset(
    ("add", "subtract", "multiply", "maximum", "minimum", "divide", "remainder", "negate", "sign", "abs")
    + ("select", "compare", "clamp", "and", "or", "xor", "not", "convert", "ceil", "floor")
)
_SYMBOLIC_SIZE = re.compile(r"(?<![\w.])((?:\d+\*)?s\d+(?:\*s\d+)*)\b")
#: The prefix of CHLO's operations with implicit broadcasting.
BROADCAST_PREFIX = "chlo.broadcast_"
_DIRECTION = re.compile(r"comparison_direction (\w+)")
#: Operations whose attributes contain sizes.
_SIZED = ("slice", "gather", "dynamic_slice")


def infer_constant(context: NodeContext) -> list[Ref]:
    """Keep a constant; elements of a small integer one are known."""
    node = context.node
    kind = node.results[0]
    dims = kind.dims or ()
    refs = context.add(node)
    count = math.prod(dims)
    is_small = not any(is_symbolic(size) or size < 0 for size in dims) and count <= MAX_ELEMENTS
    return context.record(refs, read_constant(node.attributes, kind.element, count) if is_small else None)


def infer_any(context: NodeContext) -> list[Ref]:
    """Infer an operation without its own rule."""
    if is_elementwise(context.node):
        return infer_elementwise(context)
    if context.node.regions:
        return infer_with_regions(context)
    return infer_plain(context)


def infer_elementwise(context: NodeContext) -> list[Ref]:
    """All operands have one shape; elements of a small integer result are computed."""
    node = context.node
    shapes = context.operand_dims()
    stated = context.evaluate(node.results[0].dims or ())
    dims = tuple(
        next((own[axis] for own in shapes if own[axis] != DYNAMIC), size) for axis, size in enumerate(stated)
    )
    if DYNAMIC in dims:
        raise UnresolvedSize(f"the shape of {node.op}")
    operands: list[Ref] = []
    for ref, own in zip(context.operands, shapes, strict=True):
        for size, common in zip(own, dims, strict=True):
            if size not in (DYNAMIC, common):
                context.require_equal(size, common)
        operands.append(_broadcast_to(ref, dims))
    node = node._replace(operands=tuple(operands), results=context.result_types([dims]))
    refs = context.add(node)
    if node.op not in _ARITHMETIC:
        return refs
    known = [elements for ref in operands if (elements := context.block.elements(ref)) is not None]
    if len(known) < len(operands):
        return refs
    element = node.results[0].element
    return context.record(refs, context.arithmetic.compute(node.op, node.attributes, element, known))


def infer_plain(context: NodeContext, regions: tuple[Region, ...] | None = None) -> list[Ref]:
    """Infer result shapes from those of the operands; ``regions`` replace those of the node."""
    node = context.node if regions is None else context.node._replace(regions=regions)
    shapes = context.operand_dims()
    operands = list(context.operands)
    if is_structured(node):
        count = 2 if node.op == "dot_general" else len(node.results)
        space = tuple(
            next((dims[axis] for dims in shapes[:count] if dims[axis] != DYNAMIC), DYNAMIC)
            for axis in range(len(shapes[0]))
        )
        operands[:count] = [_broadcast_to(ref, space) for ref in operands[:count]]
        shapes[:count] = [space] * count
        reduced = context.shapes(shapes).ints("dimensions")
        kept = tuple(size for axis, size in enumerate(shapes[0]) if axis not in reduced)
        results = context.result_types([kept] * len(node.results))
    elif _is_inferred(context, shapes):
        results = context.result_types(result_shapes(context.shapes(shapes)))
    else:
        results = tuple(
            kind if kind.dims is None else kind._replace(dims=context.evaluate(kind.dims))
            for kind in node.results
        )
    attributes = node.attributes
    if node.op in _SIZED:
        attributes = _SYMBOLIC_SIZE.sub(
            lambda match: size_text(context.evaluate([read_size(match[1])])[0]), attributes
        )
    return context.add(node._replace(operands=tuple(operands), results=results, attributes=attributes))


def _is_inferred(context: NodeContext, operands: Sequence[Dims]) -> bool:
    """Whether result shapes are inferred: some are unknown, or static where operands are symbolic."""
    stated = [size for kind in context.node.results for size in kind.dims or ()]
    if DYNAMIC in stated or any(DYNAMIC in dims for dims in operands):
        return True
    has_static = not all(map(is_symbolic, stated))
    has_symbolic = any(is_symbolic(size) for dims in operands for size in dims)
    return has_static and has_symbolic and context.node.op in SHAPE_FUNCTIONS


def infer_with_regions(context: NodeContext) -> list[Ref]:
    """Infer the regions, then the results: those of branches agree, those of a loop are its operands."""
    node = context.node
    explicit, captured = split_captures(node)
    count = len(explicit)
    own, rest = context.operands[:count], context.operands[count:]
    shapes = [context.block.viewed(ref).dims or () for ref in own]
    is_loop, is_branch = node.op == "while", node.op in ("if", "case")
    regions: list[Region] = []
    for region, refs in zip(node.regions, captured, strict=True):
        captures, rest = rest[: len(refs)], rest[len(refs) :]
        params = [context.block.viewed(ref) for ref in own] if is_loop else list(region.params)
        regions.append(context.region(region, params, captures))
    if is_loop:
        results = shapes
    elif is_branch:
        results = [regions[0].viewed_type(ref).dims or () for ref in regions[0].results]
    elif is_structured(node):
        return infer_plain(context, tuple(regions))
    elif _is_inferred(context, shapes):
        results = result_shapes(context.shapes(shapes))
    else:
        results = [context.evaluate(kind.dims or ()) for kind in node.results]
    for region in regions[1:] if is_branch or is_loop else ():
        for ref, dims in zip(region.results, results, strict=True):
            for size, common in zip(region.viewed_type(ref).dims or (), dims, strict=True):
                if size != common:
                    context.require_equal(size, common)
    new = node._replace(operands=tuple(context.operands), results=context.result_types(results))
    return context.add(new._replace(regions=tuple(regions)))


def _broadcast_to(ref: Ref, dims: Dims) -> Ref:
    """A view whose broadcasts of unknown size have these sizes."""
    entries = tuple(
        spread(size) if entry < 0 and spread_size(entry) == DYNAMIC else entry
        for entry, size in zip(ref.view, dims, strict=True)
    )
    return ref._replace(view=entries)


def infer_broadcasting(context: NodeContext) -> list[Ref]:
    """Return the elementwise operation of operands whose axes of size 1 are expanded."""
    node = context.node
    shapes = context.operand_dims()
    rank = len(node.results[0].dims or ())
    stated = context.shapes().ints("broadcast_dimensions")
    largest = max(map(len, shapes))
    axes = [
        tuple(stated) if stated and len(dims) < largest else tuple(range(rank - len(dims), rank))
        for dims in shapes
    ]
    dims = _common_shape(context, shapes, axes, rank)
    operands = [
        ref._replace(view=broadcast_in_dim(ref.view, own, dims))
        for ref, own in zip(context.operands, axes, strict=True)
    ]
    name = node.op.removeprefix(BROADCAST_PREFIX)
    attributes = ""
    if name == "compare":
        match = _DIRECTION.search(node.attributes)
        direction = match[1] if match else ""
        operands = operands[::-1] if direction in ("GT", "GE") else operands
        attributes = {"GT": "LT", "GE": "LE"}.get(direction, direction)
        attributes += ", TOTALORDER" if "TOTALORDER" in node.attributes else ""
    op = ELEMENTWISE.get(f"stablehlo.{name}") or ELEMENTWISE.get(f"chlo.{name}")
    if op is None:
        raise UnresolvedSize(node.op)
    return context.add(Node(op, attributes, tuple(operands), (), context.result_types([dims])))


def _common_shape(
    context: NodeContext, shapes: Sequence[Dims], axes: Sequence[tuple[int, ...]], rank: int
) -> Dims:
    """The shape that all operands are broadcast to; a symbolic size is not taken for 1."""
    common = [1] * rank
    for dims, own in zip(shapes, axes, strict=True):
        for size, axis in zip(dims, own, strict=True):
            if size != 1 and common[axis] not in (1, size):
                context.require_equal(common[axis], size)
            common[axis] = size if common[axis] == 1 else common[axis]
    return tuple(common)
