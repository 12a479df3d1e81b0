"""The operations that take or say sizes."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.canonical.graph import (
    Node,
    Ref,
    broadcast_in_dim,
)
from kcache_compiler.canonical.ops import ASSERTED
from kcache_compiler.canonical.sizes import evaluate, is_symbolic, size_text
from kcache_compiler.codegen.formula import Formula
from kcache_compiler.computed.rules import Dims, Site, convolved, gathered, padded, windows
from kcache_compiler.computed.step import Step
from kcache_compiler.computed.table import Unresolved


class Operation(Step):
    """A node of any operation; those that are not here take no sizes."""

    def _op_get_dimension_size(self) -> list[Ref]:
        size = self._dims(0)[Site(self.symbols, self.node, ()).number("dimension")]
        (type,) = self.node.results
        if is_symbolic(size):
            refs = self._add(Node("extent", size_text(size), (), (), (type,)))
        else:
            content = size.to_bytes(4, "little").hex()
            refs = self._add(Node("constant", content, (), (), (type,)))
        return self._know(refs, [self.symbols.formula(size)])

    def _op_custom_call(self) -> list[Ref]:
        if f'"{ASSERTED}"' not in self.node.attributes:
            return self._plain()
        self._require(self.node.operands[1])
        return [self.operands[0]]

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
        first = len(self.block.types) - len(self.block.nodes)
        return self.block.nodes[ref.node - first] if ref.node >= first else None

    def _op_concatenate(self) -> list[Ref]:
        known = [self.block.elements(ref) for ref in self.operands]
        refs = self._plain()
        if len(self._dims(0)) != 1 or any(one is None for one in known):
            return refs
        return self._know(refs, [element for one in known if one is not None for element in one])

    def _op_reshape(self) -> list[Ref]:
        known = self.block.elements(self.operands[0])
        return self._know(
            self._reshaped(tuple(evaluate(s, self.given) for s in self.node.results[0].dims or ())), known
        )

    def _op_dynamic_reshape(self) -> list[Ref]:
        return self._reshaped(self._sizes(1))

    def _reshaped(self, dims: Dims) -> list[Ref]:
        (type,) = self._stated([dims])
        left, right = (self._count(one) for one in (self._dims(0), dims))
        self.walk.require(left, right, equal=True)
        return self._add(Node("reshape", "", (self.operands[0],), (), (type,)))

    def _count(self, dims: Dims) -> Formula:
        total: Formula = 1
        for size in dims:
            total = self.symbols.apply("*", total, self.symbols.formula(size))
        return total

    def _op_slice(self) -> list[Ref]:
        known = self.block.elements(self.operands[0])
        refs = self._plain()
        if known is None or len(self._dims(0)) != 1:
            return refs
        site = Site(self.symbols, self.node, ())
        start, limit, step = (site.ints(name)[0] for name in ("start_indices", "limit_indices", "strides"))
        return self._know(refs, known[start:limit:step])

    def _op_dynamic_broadcast_in_dim(self) -> list[Ref]:
        dims = self._sizes(1)
        (type,) = self._stated([dims])
        where = Site(self.symbols, self.node, ()).ints("broadcast_dimensions")
        source = self.operands[0]
        for axis, target in enumerate(where):
            size = self._dims(0)[axis]
            if size not in (1, dims[target]):
                if self.symbols.range(self.symbols.formula(size))[0] < 2:
                    raise Unresolved("an axis that may be repeated")
                self._equal(size, dims[target])
        return [source._replace(view=broadcast_in_dim(source.view, tuple(where), type.dims or ()))]

    def _op_dynamic_iota(self) -> list[Ref]:
        dims = self._sizes(0)
        (type,) = self._stated([dims])
        axis = Site(self.symbols, self.node, ()).number("iota_dimension")
        (along,) = self._add(Node("iota", "", (), (), (type._replace(dims=(dims[axis],)),)))
        return [along._replace(view=broadcast_in_dim(along.view, (axis,), dims))]

    def _op_dynamic_pad(self) -> list[Ref]:
        low, high, interior = (self._numbers(position) for position in (2, 3, 4))
        sizes = [padded(self.symbols, *one) for one in zip(self._dims(0), low, high, interior, strict=True)]
        names = ("edge_padding_low", "edge_padding_high", "interior_padding")
        text = ", ".join(
            f"{name} = {self._list(one)}" for name, one in zip(names, (low, high, interior), strict=True)
        )
        node = Node("pad", text, tuple(self.operands[:2]), (), self._stated([tuple(sizes)]))
        return self._add(node)

    def _list(self, numbers: Sequence[Formula]) -> str:
        """Numbers as an attribute; open ones as sizes, which none is below 0."""
        if not numbers:
            return "array<i64>"
        parts: list[str] = []
        for one in numbers:
            if not isinstance(one, int):
                self.walk.require(0, one, equal=False)
            parts.append(str(one) if isinstance(one, int) else size_text(self.symbols.size(one)))
        return f"array<i64: {', '.join(parts)}>"

    def _op_real_dynamic_slice(self) -> list[Ref]:
        starts, limits, strides = (self._numbers(position) for position in (1, 2, 3))
        sizes: list[int] = []
        a = self.symbols.apply
        for size, start, limit, stride in zip(self._dims(0), starts, limits, strides, strict=True):
            if not isinstance(stride, int) or stride < 1:
                raise Unresolved("a stride that is computed")
            self.walk.require(0, start, equal=False)
            self.walk.require(start, limit, equal=False)
            self.walk.require(limit, self.symbols.formula(size), equal=False)
            sizes.append(self.symbols.size(a("ceildiv", a("-", limit, start), stride)))
        names = ("start_indices", "limit_indices", "strides")
        text = ", ".join(
            f"{name} = {self._list(one)}" for name, one in zip(names, (starts, limits, strides), strict=True)
        )
        return self._add(Node("slice", text, (self.operands[0],), (), self._stated([tuple(sizes)])))

    def _op_dynamic_gather(self) -> list[Ref]:
        slices = self._sizes(2)
        shown = [self._dims(0), self._dims(1)]
        for part, size in zip(slices, shown[0], strict=True):
            self.walk.require(self.symbols.formula(part), self.symbols.formula(size), equal=False)
        site = Site(self.symbols, self.node, shown)
        batching = site.ints("operand_batching_dims"), site.ints("start_indices_batching_dims")
        for one, other in zip(*batching, strict=True):
            if shown[0][one] != shown[1][other]:
                self._equal(shown[0][one], shown[1][other])
        dims = gathered(site, slices)
        text = f"{self.node.attributes}, slice_sizes = array<i64: {', '.join(map(size_text, slices))}>"
        node = Node("gather", text, tuple(self.operands[:2]), (), self._stated([dims]))
        return self._add(node)

    def _op_fft(self) -> list[Ref]:
        """The axes that it transforms have the lengths that it says."""
        lengths = Site(self.symbols, self.node, ()).ints("fft_length")
        if "IRFFT" in self.node.attributes and lengths:
            lengths[-1] = lengths[-1] // 2 + 1
        dims = self._dims(0)
        for size, length in zip(dims[len(dims) - len(lengths) :], lengths, strict=True):
            if size != length:
                self._equal(size, length)
        return self._plain()

    def _op_select_and_scatter(self) -> list[Ref]:
        """There is a source for each window."""
        shown = [self._dims(0), self._dims(1)]
        site = Site(self.symbols, self.node, shown)
        rank = len(shown[0])
        strides, wide = site.ints("window_strides", rank, 1), site.ints("window_dimensions", rank, 1)
        parts = (shown[0], shown[1], wide, strides, site.pairs("padding", rank))
        for size, source, window, stride, padding in zip(*parts, strict=True):
            self._equal(windows(self.symbols, size, window, stride, (1, 1), padding), source)
        return self._plain()

    def _op_convolution(self) -> list[Ref]:
        self._groups()
        return self._plain()

    def _groups(self) -> None:
        """Groups are equal parts of what they divide."""
        site = Site(self.symbols, self.node, [self._dims(0), self._dims(1)])
        image, kernel, _ = site.labels()
        features, batches = (site.number(f"{name}_group_count", 1) for name in ("feature", "batch"))
        given = dict(zip(image, self._dims(0), strict=True))
        weights = dict(zip(kernel, self._dims(1), strict=True))
        parts = (
            (given["b"], batches),
            (given["f"], features),
            (weights["o"], features),
            (weights["o"], batches),
        )
        for size, count in parts:
            if count != 1:
                rest = self.symbols.apply("%", self.symbols.formula(size), count)
                self.walk.require(rest, 0, equal=True)
        whole = self.symbols.apply("*", self.symbols.formula(weights["i"]), features)
        self.walk.require(whole, self.symbols.formula(given["f"]), equal=True)

    def _op_dynamic_conv(self) -> list[Ref]:
        flat = self._numbers(2)
        self._groups()
        if not all(isinstance(one, int) for one in flat):
            raise Unresolved("padding that is computed of open sizes")
        rows = list(zip(flat[::2], flat[1::2], strict=True))
        dims = convolved(Site(self.symbols, self.node, [self._dims(0), self._dims(1)]), rows)
        inner = ", ".join(f"[{low}, {high}]" for low, high in rows)
        padding = f"padding = dense<{f'[{inner}]' if rows else ''}> : tensor<{len(rows)}x2xi64>"
        text = f"{self.node.attributes}, {padding}"
        return self._add(Node("convolution", text, tuple(self.operands[:2]), (), self._stated([dims])))

    def _op_set_dimension_size(self) -> list[Ref]:
        """The first of an axis, as many as it says."""
        axis = Site(self.symbols, self.node, ()).number("dimension")
        (wanted,) = self._numbers(1)
        dims = list(self._dims(0))
        self.walk.require(0, wanted, equal=False)
        self.walk.require(wanted, self.symbols.formula(dims[axis]), equal=False)
        dims[axis] = self.symbols.size(wanted)
        zeros, ones = (f"array<i64: {', '.join([one] * len(dims))}>" for one in "01")
        text = f"start_indices = {zeros}, limit_indices = array<i64: {', '.join(map(size_text, dims))}>"
        node = Node(
            "slice", f"{text}, strides = {ones}", (self.operands[0],), (), self._stated([tuple(dims)])
        )
        return self._add(node)
