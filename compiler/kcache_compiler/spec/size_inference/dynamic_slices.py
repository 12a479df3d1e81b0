"""Slices, and parts that are as large as the program says: of a whole that has room for them at samples.

Samples of open sizes are large. A whole of fixed size is made larger by the part that is taken of it or put
into it, and what of a result is fixed is the first of it; that sizes fit is checked when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.monomial import is_symbolic, size_text
from kcache_compiler.spec.graph.constants import Constant
from kcache_compiler.spec.graph.nodes import DYNAMIC, Node, Ref, ValueType
from kcache_compiler.spec.size_inference.custom_calls import Calls
from kcache_compiler.spec.size_inference.rules import Dims, Site
from kcache_compiler.spec.size_inference.symbols import Unresolved
from kcache_compiler.types import PLAIN_DTYPES

#: Fixed sizes below this are no room for a sample.
_ROOM = 256


class Narrowed(Calls):
    """A node that takes a part of a value, or puts one into it."""

    def _op_real_dynamic_slice(self) -> list[Ref]:
        if self.block.elements(self.operands[1]) is None:
            return self._moving()
        starts, limits, strides = (self._numbers(position) for position in (1, 2, 3))
        sizes: list[int] = []
        a = self.symbols.apply
        source = self.operands[0]
        for axis, (start, limit, stride) in enumerate(zip(starts, limits, strides, strict=True)):
            if not isinstance(stride, int) or stride < 1:
                raise Unresolved("a stride that is computed")
            self.walk.require(0, start, equal=False)
            self.walk.require(start, limit, equal=False)
            source = self._roomy(source, axis, limit)
            sizes.append(self.symbols.size(a("ceildiv", a("-", limit, start), stride)))
        names = ("start_indices", "limit_indices", "strides")
        text = ", ".join(
            f"{name} = {self._list(one)}" for name, one in zip(names, (starts, limits, strides), strict=True)
        )
        return self._add(Node("slice", text, (source,), (), self._stated([tuple(sizes)])))

    def _moving(self) -> list[Ref]:
        """A slice whose starts depend on data, and whose limits are these and sizes that do not."""
        start, limit = self.operands[1:3]
        node, count = self._made(limit), len(self._dims(0))
        if node is None or node.op != "add" or (count > 1 and min(limit.view) < 0):
            raise Unresolved("a slice of sizes that depend on data")
        others = [ref for ref in node.operands if not _same(ref, start, count)]
        if len(others) != 1:
            raise Unresolved("a slice of sizes that depend on data")
        (other,) = others
        found = self.block.elements(other)
        if found is None or self._numbers(3) != [1] * len(found):
            raise Unresolved("a slice of sizes that depend on data")
        element = self.block.viewed(start).element
        scalars: list[Ref] = []
        for axis in range(len(found)):
            text = f"start_indices = array<i64: {axis}>, limit_indices = array<i64: {axis + 1}>"
            text += ", strides = array<i64: 1>"
            (one,) = self._add(Node("slice", text, (start,), (), (ValueType(element, (1,)),)))
            scalars += self._add(Node("reshape", "", (one,), (), (ValueType(element, ()),)))
        return self._taken(self.operands[0], scalars, tuple(map(self.symbols.size, found)))

    def _op_dynamic_slice(self) -> list[Ref]:
        site = Site(self.symbols, self.node, ())
        return self._taken(self.operands[0], self.operands[1:], self._given(site.sizes("slice_sizes")))

    def _taken(self, source: Ref, starts: Sequence[Ref], sizes: Dims) -> list[Ref]:
        """A slice of ``sizes`` that is moved inside of ``source``."""
        starts = list(starts)
        for axis, size in enumerate(sizes):
            starts[axis] = self._inside(source, axis, size, starts[axis])
            source = self._roomy(source, axis, self.symbols.formula(size))
        text = f"slice_sizes = array<i64{':' if sizes else ''} {', '.join(map(size_text, sizes))}>"
        return self._add(Node("dynamic_slice", text, (source, *starts), (), self._stated([sizes])))

    def _op_dynamic_update_slice(self) -> list[Ref]:
        source, part, *starts = self.operands
        dims, sizes = self._dims(0), self._dims(1)
        for axis, size in enumerate(sizes):
            starts[axis] = self._inside(source, axis, size, starts[axis])
            source = self._roomy(source, axis, self.symbols.formula(size))
        if source == self.operands[0]:
            return self._plain()
        wide = ValueType(self.node.results[0].element, self.block.viewed(source).dims)
        (made,) = self._add(Node("dynamic_update_slice", "", (source, part, *starts), (), (wide,)))
        return [self._cut(made, (0,) * len(dims), dims, wide.element)]

    def _op_set_dimension_size(self) -> list[Ref]:
        """The first of an axis, as many as it says."""
        axis = Site(self.symbols, self.node, ()).number("dimension")
        (wanted,) = self._numbers(1)
        self.walk.require(0, wanted, equal=False)
        source, dims = self._roomy(self.operands[0], axis, wanted), list(self._dims(0))
        dims[axis] = self.symbols.size(wanted)
        zeros, ones = ([one] * len(dims) for one in (0, 1))
        text = f"start_indices = {self._list(zeros)}, limit_indices = array<i64: "
        text += f"{', '.join(map(size_text, dims))}>, strides = {self._list(ones)}"
        return self._add(Node("slice", text, (source,), (), self._stated([tuple(dims)])))

    # -- room

    def _tight(self, source: Ref, axis: int, part: Formula) -> bool:
        """Whether an axis has no room for a sample of what is taken of it."""
        size = (self.block.viewed(source).dims or ())[axis]
        return 0 <= size < _ROOM and not is_symbolic(size) and self.symbols.range(part)[1] is None

    def _roomy(self, source: Ref, axis: int, part: Formula) -> Ref:
        """``source`` with room for ``part`` along an axis, which is not to be longer than that is."""
        kind = self.block.viewed(source)
        dims = list(kind.dims or ())
        if not self._tight(source, axis, part):
            self.walk.require(part, self.symbols.formula(dims[axis]), equal=False)
            return source
        self.walk.pin(part, dims[axis], equal=False)
        filler = self._zero(kind.element)
        zeros = self._list([0] * len(dims))
        high = [part if place == axis else 0 for place in range(len(dims))]
        text = (
            f"edge_padding_high = {self._list(high)}, edge_padding_low = {zeros}, interior_padding = {zeros}"
        )
        dims[axis] = self.symbols.size(self.symbols.apply("+", dims[axis], part))
        return self._add(Node("pad", text, (source, filler), (), (kind._replace(dims=tuple(dims)),)))[0]

    def _zero(self, element: str) -> Ref:
        if element not in PLAIN_DTYPES:
            raise Unresolved(f"a zero of {element}")
        content = Constant.scalar("0", element).content
        return self._add(Node("constant", content, (), (), (ValueType(element, ()),)))[0]

    def _inside(self, source: Ref, axis: int, size: int, start: Ref) -> Ref:
        """Where a part of ``size`` begins that is moved inside of an axis that is to get room for it."""
        if not self._tight(source, axis, self.symbols.formula(size)):
            return start
        most = (self.block.viewed(source).dims or ())[axis]
        element = self.block.viewed(start).element
        narrow = ValueType(element, ())
        if most >= 1 << 7:
            raise Unresolved("a part of an axis")
        last = self._scalar(most, element)
        (start,) = self._add(Node("minimum", "", (start, last), (), (narrow,)))
        (start,) = self._add(Node("maximum", "", (start, self._scalar(0, element)), (), (narrow,)))
        wide = ValueType("i64", ())
        (start,) = self._add(Node("convert", "", (start,), (), (wide,)))
        (open_,) = self._add(Node("extent", size_text(size), (), (), (wide,)))
        (free,) = self._add(Node("subtract", "", (self._scalar(most, "i64"), open_), (), (wide,)))
        return self._add(Node("minimum", "", (start, free), (), (wide,)))[0]

    def _scalar(self, number: int, element: str) -> Ref:
        content = Constant.scalar(str(number), element).content
        return self._add(Node("constant", content, (), (), (ValueType(element, ()),)))[0]

    # -- results that are fixed

    def _fixed(self, refs: Sequence[Ref]) -> list[Ref]:
        """What the program says is fixed of the results: the first of them, and a check that it is all."""
        found: list[Ref] = []
        for ref, type in zip(refs, self.node.results, strict=True):
            dims = self.block.viewed(ref).dims or ()
            wanted = tuple(
                size if said == DYNAMIC or is_symbolic(said) or not is_symbolic(size) else said
                for said, size in zip(type.dims or (), dims, strict=True)
            )
            zeros = (0,) * len(dims)
            found.append(ref if wanted == dims else self._cut(ref, zeros, wanted, type.element))
        return found


def _same(one: Ref, other: Ref, count: int) -> bool:
    """Whether two values of ``count`` elements are one; the only element is however it is viewed."""
    return one == other or (count == 1 and (one.node, one.result) == (other.node, other.result))
