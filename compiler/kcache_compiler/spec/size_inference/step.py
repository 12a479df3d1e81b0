"""One node of a program that computes sizes: what its results are where all sizes are stated."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.shapes.monomial import evaluate, is_symbolic, read_size, size_text
from kcache_compiler.spec.graph.nodes import DYNAMIC, Node, Ref, Region, ValueType, spread, spread_size
from kcache_compiler.spec.graph.operations import is_elementwise, is_structured
from kcache_compiler.spec.rendering.stablehlo import split_captures
from kcache_compiler.spec.size_inference.region import Block, stated_all
from kcache_compiler.spec.size_inference.rules import RULES, Dims, Site, shapes
from kcache_compiler.spec.size_inference.scalars import MOST, Elements, read_constant
from kcache_compiler.spec.size_inference.symbols import Unresolved

if TYPE_CHECKING:
    from kcache_compiler.spec.size_inference.resolve import Walk

_COMBINED = frozenset(
    ("add", "subtract", "multiply", "maximum", "minimum", "divide", "remainder", "negate", "sign", "abs")
    + ("select", "compare", "clamp", "and", "or", "xor", "not", "convert", "ceil", "floor")
)


class Step:
    """One node."""

    def __init__(self, walk: Walk, block: Block, node: Node, given: Mapping[int, int]) -> None:
        self.walk, self.block, self.node, self.given = walk, block, node, given
        self.symbols = walk.symbols
        self.operands = [walk.ref(block, ref, given) for ref in node.operands]

    def run(self) -> list[Ref]:
        """What its results are in the new graph."""
        return self._fixed(self._results())

    def _fixed(self, refs: Sequence[Ref]) -> list[Ref]:
        """The results, as large as the program says."""
        return list(refs)

    def _broadcasts(self) -> list[Ref]:
        raise Unresolved(self.node.op)

    def _results(self) -> list[Ref]:
        handler = getattr(self, f"_op_{self.node.op.replace('.', '_')}", None)
        if self.node.op == "constant":
            return self._literal()
        if handler is not None:
            return handler()
        if self.node.op.startswith("chlo.broadcast_"):
            return self._broadcasts()
        if is_elementwise(self.node):
            return self._elementwise()
        if self.node.regions:
            return self._with_regions()
        return self._plain()

    # -- parts

    def _dims(self, position: int) -> Dims:
        return self.block.viewed(self.operands[position]).dims or ()

    def _numbers(self, position: int) -> Elements:
        found = self.block.elements(self.operands[position])
        if found is None:
            raise Unresolved(f"{self.node.op} of sizes that depend on data")
        return found

    def _sizes(self, position: int) -> Dims:
        return tuple(self.symbols.size(one) for one in self._numbers(position))

    def _stated(self, found: Sequence[Dims]) -> tuple[ValueType, ...]:
        """The result types: what the program states, and what was found."""
        types: list[ValueType] = []
        for type, dims in zip(self.node.results, found, strict=True):
            stated = tuple(evaluate(size, self.given) for size in type.dims or ())
            if len(stated) != len(dims):
                raise Unresolved(f"the rank of {self.node.op}")
            for mine, size in zip(stated, dims, strict=True):
                if mine not in (DYNAMIC, size) and not self._pinned(mine, size):
                    self._equal(mine, size)
            types.append(type._replace(dims=tuple(dims)))
        return tuple(types)

    def _pinned(self, stated: int, size: int) -> bool:
        """Whether a size is a number that no choice of sizes gives but by chance: it is checked at a call."""
        if is_symbolic(stated) or not is_symbolic(size) or not self.symbols.divides(size):
            return False
        self.walk.pin(self.symbols.formula(size), stated, equal=True)
        return True

    def _given(self, sizes: Sequence[int]) -> Dims:
        """Sizes of the old graph in the new one."""
        return tuple(evaluate(size, self.given) for size in sizes)

    def _equal(self, one: int, other: int) -> None:
        self.walk.require(self.symbols.formula(one), self.symbols.formula(other), equal=True)

    def _add(self, node: Node) -> list[Ref]:
        for ref in node.operands:
            if any(entry < 0 and spread_size(entry) == DYNAMIC for entry in ref.view):
                raise Unresolved("a value repeated to a size that nothing shows")
        return self.block.add(node)

    def _know(self, refs: list[Ref], found: Elements | None) -> list[Ref]:
        if found is not None:
            self.block.known[refs[0].node, refs[0].result] = found
        return refs

    # -- nodes

    def _literal(self) -> list[Ref]:
        type = self.node.results[0]
        dims = type.dims or ()
        refs = self._add(self.node)
        count = math.prod(dims)
        few = not any(is_symbolic(size) or size < 0 for size in dims) and count <= MOST
        return self._know(refs, read_constant(self.node.attributes, type.element, count) if few else None)

    def _elementwise(self) -> list[Ref]:
        shown = [self.block.viewed(ref).dims or () for ref in self.operands]
        dims = tuple(
            next((own[axis] for own in shown if own[axis] != DYNAMIC), evaluate(size, self.given))
            for axis, size in enumerate(self.node.results[0].dims or ())
        )
        if DYNAMIC in dims:
            raise Unresolved(f"the shape of {self.node.op}")
        operands: list[Ref] = []
        for ref, own in zip(self.operands, shown, strict=True):
            for mine, size in zip(own, dims, strict=True):
                if mine not in (DYNAMIC, size):
                    self._equal(mine, size)
            operands.append(_filled(ref, dims))
        node = self.node._replace(operands=tuple(operands), results=self._stated([dims]))
        refs = self._add(node)
        if self.node.op not in _COMBINED:
            return refs
        known = [self.block.elements(ref) for ref in operands]
        element = node.results[0].element
        if any(one is None for one in known):
            return refs
        return self._know(
            refs,
            self.walk.arithmetic.compute(
                self.node.op, self.node.attributes, element, [one for one in known if one is not None]
            ),
        )

    def _plain(self) -> list[Ref]:
        """An operation whose results follow from the shapes of its operands."""
        shown = [self.block.viewed(ref).dims or () for ref in self.operands]
        structured = is_structured(self.node)
        operands = list(self.operands)
        if structured:
            count = 2 if self.node.op == "dot_general" else len(self.node.results)
            space = tuple(
                next((d[axis] for d in shown[:count] if d[axis] != DYNAMIC), DYNAMIC)
                for axis in range(len(shown[0]))
            )
            operands[:count] = [_filled(ref, space) for ref in operands[:count]]
            shown[:count] = [space] * count
        results = self.node.results
        if structured:
            reduced = Site(self.symbols, self.node, shown).ints("dimensions")
            kept = tuple(size for axis, size in enumerate(shown[0]) if axis not in reduced)
            results = self._stated([kept] * len(results))
        elif self._follows(shown):
            results = self._stated(shapes(Site(self.symbols, self.node, shown)))
        else:
            results = stated_all(results, self.given)
        attributes = (
            re.sub(
                r"(?<![\w.])((?:\d+\*)?s\d+(?:\*s\d+)*)\b",
                lambda m: size_text(evaluate(read_size(m[1]), self.given)),
                self.node.attributes,
            )
            if self.node.op in ("slice", "gather", "dynamic_slice")
            else self.node.attributes
        )
        return self._add(self.node._replace(operands=tuple(operands), results=results, attributes=attributes))

    def _follows(self, shown: Sequence[Dims]) -> bool:
        """Whether sizes of the results follow from those of the operands, and are not stated, or fixed."""
        stated = [size for type in self.node.results for size in type.dims or ()]
        if DYNAMIC in stated or any(DYNAMIC in dims for dims in shown):
            return True
        fixed = not all(map(is_symbolic, stated)) and any(
            is_symbolic(size) for dims in shown for size in dims
        )
        return fixed and self.node.op in RULES

    def _with_regions(self) -> list[Ref]:
        explicit, captured = split_captures(self.node)
        count = len(explicit)
        own, rest = self.operands[:count], self.operands[count:]
        carried = self.node.op == "while"
        regions: list[Region] = []
        for region, refs in zip(self.node.regions, captured, strict=True):
            mine, rest = rest[: len(refs)], rest[len(refs) :]
            params = [self.block.viewed(ref) for ref in own] if carried else list(region.params)
            regions.append(
                self.walk.region(
                    region,
                    params,
                    [self.block.viewed(ref) for ref in mine],
                    [self.block.elements(ref) for ref in mine],
                    self.given,
                )
            )
        if carried:
            found = [self.block.viewed(ref).dims or () for ref in own]
        elif self.node.op in ("if", "case"):
            found = [regions[0].viewed_type(ref).dims or () for ref in regions[0].results]
        elif is_structured(self.node):
            return self._reduced(tuple(regions))
        elif self._follows([self.block.viewed(ref).dims or () for ref in own]):
            site = Site(self.symbols, self.node, [self.block.viewed(ref).dims or () for ref in own])
            found = shapes(site)
        else:
            found = [tuple(evaluate(s, self.given) for s in type.dims or ()) for type in self.node.results]
        for region in regions[1:] if self.node.op in ("if", "case") else regions[1:] if carried else []:
            for ref, dims in zip(region.results, found, strict=True):
                for one, other in zip(region.viewed_type(ref).dims or (), dims, strict=True):
                    if one != other:
                        self._equal(one, other)
        node = self.node._replace(operands=tuple(self.operands), results=self._stated(found))
        return self._add(node._replace(regions=tuple(regions)))

    def _reduced(self, regions: tuple[Region, ...]) -> list[Ref]:
        self.node = self.node._replace(regions=regions)
        return self._plain()


def _filled(ref: Ref, dims: Dims) -> Ref:
    """A view whose open repetitions have these sizes."""
    entries = tuple(
        spread(size) if entry < 0 and spread_size(entry) == DYNAMIC else entry
        for entry, size in zip(ref.view, dims, strict=True)
    )
    return ref._replace(view=entries)
