"""Shape inference of ``arith``, ``tensor`` and ``shape`` operations, by which importers compute sizes.

Also of tuples, which are replaced by their elements. A scalar of sizes is a tensor of rank 0 in i64, whatever
integer or index type it has in the program.
"""

from __future__ import annotations

import re

from kcache_compiler.shapes.arithmetic import Elements
from kcache_compiler.shapes.formula import Formula, UnresolvedSize
from kcache_compiler.spec.graph.nodes import Node, Ref, ValueType
from kcache_compiler.spec.shape_inference.context import NodeContext
from kcache_compiler.spec.shape_inference.generic import infer_plain

_CONSTANT = re.compile(r"value = (-?\d+|true|false)(?: : \w+)?$")
#: Operations of ``arith`` on integers, as StableHLO calls them.
_ARITHMETIC = {
    "arith.addi": "add",
    "arith.subi": "subtract",
    "arith.muli": "multiply",
    "arith.divsi": "divide",
    "arith.remsi": "remainder",
    "arith.maxsi": "maximum",
    "arith.minsi": "minimum",
    "arith.select": "select",
}
#: ``arith.cmpi`` predicates by value; unsigned ones are not followed.
_PREDICATES = ("EQ", "NE", "LT", "LE", "GT", "GE")
#: Types of sizes; narrower integers might overflow.
_SIZE_TYPES = ("i32", "i64", "index")


def infer_arith_constant(context: NodeContext) -> list[Ref]:
    """Return a scalar constant; others are kept."""
    match = _CONSTANT.search(context.node.attributes)
    if context.node.results[0].dims is not None or match is None:
        return infer_plain(context)
    value = {"true": 1, "false": 0}.get(match[1])
    return context.size_scalar(int(match[1]) if value is None else value)


def infer_tensor_dim(context: NodeContext) -> list[Ref]:
    """Return the size of an axis."""
    (axis,) = context.elements(1)
    dims = context.dims(0)
    if not isinstance(axis, int) or not 0 <= axis < len(dims):
        raise UnresolvedSize("the size of a symbolic axis")
    return context.size_scalar(context.symbols.formula(dims[axis]))


def infer_sign_preserving_cast(context: NodeContext) -> list[Ref]:
    """Return the same value: sizes fit all types that programs compute them in. A cast boolean is 0 or -1."""
    if context.node.results[0].dims is not None:
        return infer_plain(context)
    (value,) = context.elements(0)
    if context.node.results[0].element not in _SIZE_TYPES or _is_boolean(context, 0):
        raise UnresolvedSize("integers that may not hold a size")
    return context.size_scalar(value)


def infer_extui(context: NodeContext) -> list[Ref]:
    """Return the same value, which must not be negative."""
    (value,) = context.elements(0)
    if context.node.results[0].dims is not None or context.symbols.range(value)[0] < 0:
        raise UnresolvedSize("an unsigned extension of a value that may be negative")
    return context.size_scalar(value)


def infer_arithmetic(context: NodeContext) -> list[Ref]:
    """Compute an integer operation on scalars."""
    return _scalar(context, _ARITHMETIC[context.node.op], "", "i64")


def infer_floordivsi(context: NodeContext) -> list[Ref]:
    """Compute a quotient rounded down, also of a dividend that is never positive."""
    (left,), (right,) = context.elements(0), context.elements(1)
    high = context.symbols.range(left)[1]
    if high is None or high > 0:
        return _scalar(context, "divide", "", "i64")
    if context.symbols.range(right)[0] < 1 or context.node.results[0].element not in _SIZE_TYPES:
        raise UnresolvedSize(context.node.op)
    a = context.symbols.apply
    return context.size_scalar(a("-", 0, a("ceildiv", a("-", 0, left), right)))


def infer_cmpi(context: NodeContext) -> list[Ref]:
    """Compute a signed comparison; booleans, whose order differs, are compared for equality only."""
    match = re.search(r"predicate = (\d+)", context.node.attributes)
    is_scalar = context.node.results[0].dims is None
    if match is None or int(match[1]) >= len(_PREDICATES) or not is_scalar:
        raise UnresolvedSize(context.node.op)
    direction = _PREDICATES[int(match[1])]
    if direction not in ("EQ", "NE") and (_is_boolean(context, 0) or _is_boolean(context, 1)):
        raise UnresolvedSize("an order of booleans")
    return _scalar(context, "compare", direction, "i1")


def _scalar(context: NodeContext, op: str, attributes: str, element: str) -> list[Ref]:
    known = [context.elements(position) for position in range(len(context.operands))]
    result = context.arithmetic.compute(op, attributes, element, known)
    if context.node.results[0].element not in (*_SIZE_TYPES, "i1" if element == "i1" else ""):
        raise UnresolvedSize("integers that may not hold a size")
    if result is None or context.node.results[0].dims is not None:
        raise UnresolvedSize(context.node.op)
    return context.size_scalar(result[0])


def _is_boolean(context: NodeContext, position: int) -> bool:
    ref = context.operands[position]
    return (ref.node, ref.result) in context.block.booleans


def infer_from_elements(context: NodeContext) -> list[Ref]:
    """Return scalars as a vector, or as a tensor of rank 0."""
    (kind,) = context.node.results
    if kind.element not in _SIZE_TYPES or len(kind.dims or ()) > 1:
        raise UnresolvedSize("elements that are no sizes")
    known = [context.elements(position)[0] for position in range(len(context.operands))]
    element = "i64" if kind.element == "index" else kind.element
    scalars = [_as_type(context, ref, element) for ref in context.operands]
    if kind.dims == ():
        return context.record(scalars, known)
    return _vector(context, scalars, known, element)


def infer_shape_of(context: NodeContext) -> list[Ref]:
    """Return the shape of the operand as a vector."""
    known: list[Formula] = [context.symbols.formula(size) for size in context.dims(0)]
    if context.node.results[0].dims is None or not known:
        raise UnresolvedSize("a shape that is no tensor")
    return _vector(context, [context.size_scalar(size)[0] for size in known], known, "i64")


def _vector(context: NodeContext, scalars: list[Ref], known: Elements, element: str) -> list[Ref]:
    part_type, type_ = ValueType(element, (1,)), ValueType(element, (len(scalars),))
    parts = [context.add(Node("reshape", "", (ref,), (), (part_type,)))[0] for ref in scalars]
    refs = context.add(Node("concatenate", "dimension = 0 : i64", tuple(parts), (), (type_,)))
    return context.record(refs, known)


def _as_type(context: NodeContext, ref: Ref, element: str) -> Ref:
    if (ref.node, ref.result) in context.block.unrepresented:
        raise UnresolvedSize("a value that may be negative as an element")
    if context.block.viewed(ref).element == element:
        return ref
    return context.add(Node("convert", "", (ref,), (), (ValueType(element, ()),)))[0]


def infer_tuple(context: NodeContext) -> list[Ref]:
    """Record the elements of a tuple; return a scalar for it, as its type would contain symbolic sizes."""
    refs = context.size_scalar(0)
    context.block.tuples[refs[0].node, refs[0].result] = tuple(context.operands)
    return refs


def infer_get_tuple_element(context: NodeContext) -> list[Ref]:
    """Return an element of a tuple of the same region. Raises ``UnresolvedSize`` for one from outside."""
    (ref,) = context.operands
    elements = context.block.tuples.get((ref.node, ref.result))
    if elements is None:
        raise UnresolvedSize("a tuple from another region")
    return [elements[context.shapes().number("index")]]
