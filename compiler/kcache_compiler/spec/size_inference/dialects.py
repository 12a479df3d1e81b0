"""Operations of other dialects by which importers write sizes, and CHLO's that broadcast.

Scalars of sizes are tensors of no axes in i64 from here on, whatever integer or index they were.
"""

from __future__ import annotations

import re

from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.monomial import size_text
from kcache_compiler.spec.graph.constants import Constant
from kcache_compiler.spec.graph.nodes import Node, Ref, ValueType, broadcast_in_dim
from kcache_compiler.spec.graph.operations import ELEMENTWISE
from kcache_compiler.spec.size_inference.dynamic_slices import Narrowed
from kcache_compiler.spec.size_inference.rules import Dims, Site
from kcache_compiler.spec.size_inference.scalars import Elements
from kcache_compiler.spec.size_inference.symbols import Unresolved

_SCALAR = ValueType("i64", ())
_NUMBER = re.compile(r"value = (-?\d+|true|false)(?: : \w+)?$")
_ARITHMETIC = {
    "arith.addi": "add",
    "arith.subi": "subtract",
    "arith.muli": "multiply",
    "arith.divsi": "divide",
    "arith.remsi": "remainder",
    "arith.maxsi": "maximum",
    "arith.minsi": "minimum",
}
#: Of ``arith.cmpi``, by its numbers: signed ones, as sizes are.
_PREDICATES = ("EQ", "NE", "LT", "LE", "GT", "GE")
#: What sizes are written in: narrower integers might not hold them.
_WIDE = ("i32", "i64", "index")
_DIRECTION = re.compile(r"comparison_direction (\w+)")


class Dialects(Narrowed):
    """A node of arith, tensor or CHLO."""

    def _op_arith_constant(self) -> list[Ref]:
        found = _NUMBER.search(self.node.attributes)
        if self.node.results[0].dims is not None or found is None:
            return self._plain()
        return self._size(
            {"true": 1, "false": 0}[found[1]] if found[1] in ("true", "false") else int(found[1])
        )

    def _op_tensor_dim(self) -> list[Ref]:
        (axis,) = self._numbers(1)
        dims = self._dims(0)
        if not isinstance(axis, int) or not 0 <= axis < len(dims):
            raise Unresolved("an axis that is computed")
        return self._size(self.symbols.formula(dims[axis]))

    def _op_arith_index_cast(self) -> list[Ref]:
        """The same number: sizes fit every integer that they are written in. A truth has a sign there."""
        if self.node.results[0].dims is not None:
            return self._plain()
        (number,) = self._numbers(0)
        if self.node.results[0].element not in _WIDE or self._is_truth(0):
            raise Unresolved("integers that may not hold a size")
        return self._size(number)

    _op_arith_extsi = _op_arith_index_cast
    _op_arith_trunci = _op_arith_index_cast

    def _op_arith_extui(self) -> list[Ref]:
        (number,) = self._numbers(0)
        if self.node.results[0].dims is not None or self.symbols.range(number)[0] < 0:
            raise Unresolved("a number that may be below 0 without its sign")
        return self._size(number)

    def _is_truth(self, position: int) -> bool:
        """Whether an operand is an integer of one bit."""
        ref = self.operands[position]
        return (ref.node, ref.result) in self.block.truths

    def _op_arith_addi(self) -> list[Ref]:
        return self._scalar_of(_ARITHMETIC[self.node.op], "", "i64")

    _op_arith_subi = _op_arith_addi
    _op_arith_muli = _op_arith_addi
    _op_arith_divsi = _op_arith_addi
    _op_arith_remsi = _op_arith_addi
    _op_arith_maxsi = _op_arith_addi
    _op_arith_minsi = _op_arith_addi

    def _op_arith_floordivsi(self) -> list[Ref]:
        """Down, below 0 too."""
        (left,), (right,) = self._numbers(0), self._numbers(1)
        most = self.symbols.range(left)[1]
        if most is None or most > 0:
            return self._scalar_of("divide", "", "i64")
        if self.symbols.range(right)[0] < 1 or self.node.results[0].element not in _WIDE:
            raise Unresolved(self.node.op)
        a = self.symbols.apply
        return self._size(a("-", 0, a("ceildiv", a("-", 0, left), right)))

    def _op_arith_cmpi(self) -> list[Ref]:
        found = re.search(r"predicate = (\d+)", self.node.attributes)
        if found is None or int(found[1]) >= len(_PREDICATES) or self.node.results[0].dims is not None:
            raise Unresolved(self.node.op)
        direction = _PREDICATES[int(found[1])]
        ordered = direction not in ("EQ", "NE")
        if ordered and any(map(self._is_truth, range(2))):
            raise Unresolved("an order of truths")
        return self._scalar_of("compare", direction, "i1")

    def _op_arith_select(self) -> list[Ref]:
        return self._scalar_of("select", "", "i64")

    def _scalar_of(self, op: str, attributes: str, element: str) -> list[Ref]:
        known = [self._numbers(place) for place in range(len(self.operands))]
        made = self.walk.arithmetic.compute(op, attributes, element, known)
        if self.node.results[0].element not in (*_WIDE, "i1" if element == "i1" else ""):
            raise Unresolved("integers that may not hold a size")
        if made is None or self.node.results[0].dims is not None:
            raise Unresolved(self.node.op)
        return self._size(made[0])

    def _op_tensor_from_elements(self) -> list[Ref]:
        (type,) = self.node.results
        if type.element not in ("index", "i32", "i64") or len(type.dims or ()) > 1:
            raise Unresolved("elements that are no sizes")
        known = [self._numbers(place)[0] for place in range(len(self.operands))]
        element = "i64" if type.element == "index" else type.element
        scalars = [self._as(ref, element) for ref in self.operands]
        return self._know(scalars, known) if type.dims == () else self._vector(scalars, known, element)

    def _op_shape_shape_of(self) -> list[Ref]:
        known = [self.symbols.formula(size) for size in self._dims(0)]
        if self.node.results[0].dims is None or not known:
            raise Unresolved("a shape that is no tensor")
        return self._vector([self._size(one)[0] for one in known], known, "i64")

    def _vector(self, scalars: list[Ref], known: Elements, element: str) -> list[Ref]:
        """Numbers side by side."""
        one, whole = ValueType(element, (1,)), ValueType(element, (len(scalars),))
        parts = [self._add(Node("reshape", "", (ref,), (), (one,)))[0] for ref in scalars]
        refs = self._add(Node("concatenate", "dimension = 0 : i64", tuple(parts), (), (whole,)))
        return self._know(refs, known)

    def _size(self, formula: Formula) -> list[Ref]:
        """A number of sizes as a value."""
        if isinstance(formula, int):
            refs = self._add(
                Node("constant", Constant.scalar(str(formula), "i64").content, (), (), (_SCALAR,))
            )
        elif self.symbols.range(formula)[0] < 0:
            # No size, and so no extent: what is negative on the way is a number of the compiler alone.
            refs = self._add(Node("constant", Constant.scalar("0", "i64").content, (), (), (_SCALAR,)))
            self.block.unspoken.add((refs[0].node, refs[0].result))
        else:
            refs = self._add(Node("extent", size_text(self.symbols.size(formula)), (), (), (_SCALAR,)))
        if self.node.results[0].element == "i1":
            self.block.truths.add((refs[0].node, refs[0].result))
        return self._know(refs, [formula])

    def _as(self, ref: Ref, element: str) -> Ref:
        if (ref.node, ref.result) in self.block.unspoken:
            raise Unresolved("a number that may be below 0 as a value")
        if self.block.viewed(ref).element == element:
            return ref
        return self._add(Node("convert", "", (ref,), (), (ValueType(element, ()),)))[0]

    # -- tuples

    def _op_tuple(self) -> list[Ref]:
        """A number stands for it, as its type would have open sizes in it."""
        refs = self._size(0)
        self.block.tuples[refs[0].node, refs[0].result] = tuple(self.operands)
        return refs

    def _op_get_tuple_element(self) -> list[Ref]:
        (whole,) = self.operands
        parts = self.block.tuples.get((whole.node, whole.result))
        if parts is None:
            raise Unresolved("a tuple that is not made here")
        return [parts[Site(self.symbols, self.node, ()).number("index")]]

    # -- CHLO

    def _broadcasts(self) -> list[Ref]:
        """An operation element by element of operands whose axes of size 1 are repeated."""
        given = [self.block.viewed(ref).dims or () for ref in self.operands]
        rank = len(self.node.results[0].dims or ())
        stated = Site(self.symbols, self.node, ()).ints("broadcast_dimensions")
        largest = max(map(len, given))
        where = [
            tuple(stated) if stated and len(dims) < largest else tuple(range(rank - len(dims), rank))
            for dims in given
        ]
        dims = self._common(given, where, rank)
        operands = [
            ref._replace(view=broadcast_in_dim(ref.view, places, dims))
            for ref, places in zip(self.operands, where, strict=True)
        ]
        name = self.node.op.removeprefix("chlo.broadcast_")
        attributes = ""
        if name == "compare":
            found = _DIRECTION.search(self.node.attributes)
            direction = found[1] if found else ""
            operands = operands[::-1] if direction in ("GT", "GE") else operands
            attributes = {"GT": "LT", "GE": "LE"}.get(direction, direction)
            attributes += ", TOTALORDER" if "TOTALORDER" in self.node.attributes else ""
        op = ELEMENTWISE.get(f"stablehlo.{name}") or ELEMENTWISE.get(f"chlo.{name}")
        if op is None:
            raise Unresolved(self.node.op)
        return self._add(Node(op, attributes, tuple(operands), (), self._stated([dims])))

    def _common(self, given: list[Dims], where: list[tuple[int, ...]], rank: int) -> Dims:
        """The shape that all are repeated to. An axis of open size is not taken for one of size 1."""
        found = [1] * rank
        for dims, places in zip(given, where, strict=True):
            for size, place in zip(dims, places, strict=True):
                if size != 1 and found[place] not in (1, size):
                    self._equal(found[place], size)
                found[place] = size if found[place] == 1 else found[place]
        return tuple(found)
