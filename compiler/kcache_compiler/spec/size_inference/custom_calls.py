"""Custom calls that say sizes, or take them as operands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kcache_compiler.frontends.stablehlo.dynamic_custom_calls import WINDOW
from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.monomial import size_text
from kcache_compiler.spec.graph.nodes import Node, Ref
from kcache_compiler.spec.graph.operations import ASSERTED
from kcache_compiler.spec.size_inference.rules import Dims, windows
from kcache_compiler.spec.size_inference.step import Step
from kcache_compiler.spec.size_inference.symbols import Unresolved

#: Which operands of a call say the shapes of its results, one each.
_SHAPES = re.compile(r"indices_of_shape_operands = dense<\[?([\d, ]*)\]?> : tensor<\d+xi64>")
#: Windows of one element each, as ``kcache_compiler.frontends.stablehlo.dynamic_custom_calls`` writes them.
_SINGLE = re.compile(r"window_dimensions = array<i64(: 1(, 1)*)?>")
#: What a call says of its operands by their places, which does not change what it means here.
_PLACES = ("indices_of_shape_operands", "operand_layouts", "result_layouts", "output_operand_aliases")


class Calls(Step):
    """A node that is a custom call."""

    def _op_custom_call(self) -> list[Ref]:
        if f'"{WINDOW}"' in self.node.attributes:
            return self._window()
        if f'"{ASSERTED}"' in self.node.attributes:
            self._require(self.node.operands[1])
            return [self.operands[0]]
        shapes = _SHAPES.search(self.node.attributes)
        return self._plain() if shapes is None else self._shaped([int(n) for n in shapes[1].split(", ")])

    def _shaped(self, places: Sequence[int]) -> list[Ref]:
        """A call whose last operands are the shapes of its results."""
        first = len(self.operands) - len(places)
        if list(places) != list(range(first, len(self.operands))):
            raise Unresolved("shapes that are not the last operands")
        found = [self._sizes(place) for place in places]
        kept = (one for one in _attributes(self.node.attributes) if not one.startswith(_PLACES))
        text = ", ".join(kept)
        operands = tuple(self.operands[:first])
        return self._add(Node("custom_call", text, operands, (), self._stated(found)))

    # -- windows

    def _window(self) -> list[Ref]:
        """A window whose numbers are computed, of the results of one of single elements."""
        count = len(self.node.results)
        single, index = self._made(self.operands[0]), self.operands[0].node
        if single is None or single.op != "reduce_window" or not _SINGLE.fullmatch(single.attributes):
            raise Unresolved("windows that are not known")
        if [(ref.node, ref.result) for ref in self.operands[:count]] != [(index, n) for n in range(count)]:
            raise Unresolved("windows of several operations")
        sizes, *steps, flat = (self._numbers(count + place) for place in range(5))
        for size in sizes:
            self.walk.require(1, size, equal=False)
        strides, bases, taps = ([_step(one) for one in part] for part in steps)
        padding = list(zip(flat[::2], flat[1::2], strict=True))
        spreads = list(zip(bases, taps, strict=True))
        parts = zip(self._dims(0), sizes, strides, spreads, padding, strict=True)
        dims = tuple(windows(self.symbols, *one) for one in parts)
        names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
        lists = zip(names, (sizes, strides, bases, taps), strict=True)
        text = ", ".join(f"{name} = {self._list(one)}" for name, one in lists)
        text = f"{text}, padding = {self._pairs(padding)}"
        return self._add(single._replace(attributes=text, results=self._stated([dims] * count)))

    def _pairs(self, rows: Sequence[tuple[Formula, Formula]]) -> str:
        """Padding as an attribute."""
        inner = ", ".join(f"[{self._number(low)}, {self._number(high)}]" for low, high in rows)
        return f"dense<{f'[{inner}]' if rows else ''}> : tensor<{len(rows)}x2xi64>"

    def _list(self, numbers: Sequence[Formula]) -> str:
        """Numbers as an attribute; open ones as sizes, which none is below 0."""
        return f"array<i64: {', '.join(map(self._number, numbers))}>" if numbers else "array<i64>"

    def _number(self, one: Formula) -> str:
        if isinstance(one, int):
            return str(one)
        self.walk.require(0, one, equal=False)
        return size_text(self.symbols.size(one))

    # -- assertions

    def _require(self, ref: Ref) -> None:
        node = self._made(self.walk.ref(self.block, ref, self.given))
        if node is not None and node.op == "and":
            for operand in node.operands:
                self._required(operand)
            return
        self._required(self.walk.ref(self.block, ref, self.given))

    def _required(self, ref: Ref) -> None:
        node = self._made(ref)
        if node is not None and node.op == "and":
            for operand in node.operands:
                self._required(operand)
            return
        direction = node.attributes.partition(", ")[0] if node is not None and node.op == "compare" else ""
        if node is not None and direction in ("EQ", "LE", "LT"):
            left, right = (self.block.elements(operand) for operand in node.operands)
            if left is not None and right is not None:
                less = self.symbols.apply("+", left[0], int(direction == "LT"))
                self.walk.require(less, right[0], direction == "EQ")
                return
        found = self.block.elements(ref)
        if found is None:
            raise Unresolved("an assertion that depends on data")
        self.walk.require(1, found[0], equal=True)

    def _made(self, ref: Ref) -> Node | None:
        """The node of this region that a value comes from."""
        first = len(self.block.types) - len(self.block.nodes)
        return self.block.nodes[ref.node - first] if ref.node >= first else None

    def _cut(self, source: Ref, starts: Dims, limits: Dims, element: str) -> Ref:
        """``source`` from ``starts`` to ``limits``."""
        ones = self._list([1] * len(limits))
        first, last = (f"array<i64: {', '.join(map(size_text, part))}>" for part in (starts, limits))
        text = f"start_indices = {first}, limit_indices = {last}, strides = {ones}"
        dims = tuple(limit - start if start else limit for start, limit in zip(starts, limits, strict=True))
        kind = self.node.results[0]._replace(element=element, dims=dims)
        return self._add(Node("slice", text, (source,), (), (kind,)))[0]


def _attributes(text: str) -> list[str]:
    """Attributes one by one."""
    parts, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == '"'
        depth += 0 if quoted else (character in "[{<(") - (character in "]}>)")
        if character == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [one.strip() for one in parts]


def _step(number: Formula) -> int:
    if not isinstance(number, int) or number < 1:
        raise Unresolved("strides or dilations that are computed")
    return number
