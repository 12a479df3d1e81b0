"""Shape inference of custom calls: dynamic windows, shape assertions, and calls with shape operands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kcache_compiler.frontends.stablehlo.dynamic_custom_calls import REDUCE_WINDOW
from kcache_compiler.mlir.attribute_text import split_attributes
from kcache_compiler.shapes.formula import Formula, UnresolvedSize
from kcache_compiler.shapes.shape_functions import window_count
from kcache_compiler.spec.graph.nodes import Node, Ref
from kcache_compiler.spec.graph.operations import ASSERTED
from kcache_compiler.spec.shape_inference.context import NodeContext
from kcache_compiler.spec.shape_inference.generic import infer_plain

#: Which operands of a call are the shapes of its results, one each (``jax.export``).
_SHAPE_OPERANDS = re.compile(r"indices_of_shape_operands = dense<\[?([\d, ]*)\]?> : tensor<\d+xi64>")
#: Windows of one element, as ``kcache_compiler.frontends.stablehlo.dynamic_custom_calls`` writes them.
_ONE_ELEMENT = re.compile(r"window_dimensions = array<i64(: 1(, 1)*)?>")
#: Attributes that number the operands or results of a call.
_NUMBERING = ("indices_of_shape_operands", "operand_layouts", "result_layouts", "output_operand_aliases")


def infer_custom_call(context: NodeContext) -> list[Ref]:
    """Infer a custom call by its target."""
    attributes = context.node.attributes
    if f'"{REDUCE_WINDOW}"' in attributes:
        return _dynamic_window(context)
    if f'"{ASSERTED}"' in attributes:
        _require_assertion(context, context.operand(context.node.operands[1]))
        return [context.operands[0]]
    match = _SHAPE_OPERANDS.search(attributes)
    if match is None:
        return infer_plain(context)
    return _call_with_shapes(context, [int(position) for position in match[1].split(", ")])


def _call_with_shapes(context: NodeContext, positions: Sequence[int]) -> list[Ref]:
    """A call whose last operands are the shapes of its results."""
    first = len(context.operands) - len(positions)
    if list(positions) != list(range(first, len(context.operands))):
        raise UnresolvedSize("shape operands that are not the last ones")
    shapes = [context.sizes(position) for position in positions]
    attributes = split_attributes(context.node.attributes)
    text = ", ".join(attribute for attribute in attributes if not attribute.startswith(_NUMBERING))
    operands = tuple(context.operands[:first])
    return context.add(Node("custom_call", text, operands, (), context.result_types(shapes)))


def _dynamic_window(context: NodeContext) -> list[Ref]:
    """A ``reduce_window`` with parameters as operands; its template has windows of one element."""
    count = len(context.node.results)
    leaf = context.operands[0].node
    template = context.block.defining_node(context.operands[0])
    if template is None or template.op != "reduce_window" or not _ONE_ELEMENT.fullmatch(template.attributes):
        raise UnresolvedSize("a dynamic window without its template")
    if [(ref.node, ref.result) for ref in context.operands[:count]] != [(leaf, n) for n in range(count)]:
        raise UnresolvedSize("a dynamic window of several operations")
    sizes, *steps, flat = (context.elements(count + position) for position in range(5))
    for size in sizes:
        context.requirements.require(1, size, equal=False)
    strides, base, window = ([_static_step(step) for step in part] for part in steps)
    padding = list(zip(flat[::2], flat[1::2], strict=True))
    dilations = list(zip(base, window, strict=True))
    rows = zip(context.dims(0), sizes, strides, dilations, padding, strict=True)
    dims = tuple(window_count(context.symbols, *row) for row in rows)
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    text = context.size_lists(names, (sizes, strides, base, window))
    text = f"{text}, padding = {context.size_pairs(padding)}"
    results = context.result_types([dims] * count)
    return context.add(template._replace(attributes=text, results=results))


def _require_assertion(context: NodeContext, condition: Ref) -> None:
    """Require what a shape assertion checks: comparisons of sizes, and conjunctions of them."""
    node = context.block.defining_node(condition)
    if node is not None and node.op == "and":
        for operand in node.operands:
            _require_assertion(context, operand)
        return
    direction = node.attributes.partition(", ")[0] if node is not None and node.op == "compare" else ""
    if node is not None and direction in ("EQ", "LE", "LT"):
        left, right = (context.block.elements(operand) for operand in node.operands)
        if left is not None and right is not None:
            lower = context.symbols.apply("+", left[0], int(direction == "LT"))
            context.requirements.require(lower, right[0], direction == "EQ")
            return
    elements = context.block.elements(condition)
    if elements is None:
        raise UnresolvedSize("an assertion that depends on data")
    context.requirements.require(1, elements[0], equal=True)


def _static_step(step: Formula) -> int:
    if not isinstance(step, int) or step < 1:
        raise UnresolvedSize("symbolic strides or dilations")
    return step
