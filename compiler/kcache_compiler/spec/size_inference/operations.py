"""The operations that take or say sizes."""

from __future__ import annotations

import re

from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.monomial import evaluate, is_symbolic, size_text
from kcache_compiler.spec.graph.nodes import Node, Ref, broadcast_in_dim
from kcache_compiler.spec.size_inference.dialects import Dialects
from kcache_compiler.spec.size_inference.rules import (
    Dims,
    Site,
    convolved,
    einsum_terms,
    gathered,
    padded,
    windows,
)
from kcache_compiler.spec.size_inference.symbols import Unresolved

#: Elements that are put around an image beside those that are computed.
_MORE = 64


class Operation(Dialects):
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

    def _op_concatenate(self) -> list[Ref]:
        known = [self.block.elements(ref) for ref in self.operands]
        refs = self._plain()
        along = Site(self.symbols, self.node, ()).number("dimension")
        if along or not self._dims(0) or any(one is None for one in known):
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

    def _op_einsum(self) -> list[Ref]:
        """A letter is one size wherever it stands."""
        sizes: dict[str, int] = {}
        for place, letters in enumerate(einsum_terms(self.node)[:-1]):
            for letter, size in zip(letters, self._dims(place), strict=True):
                if sizes.setdefault(letter, size) != size:
                    self._equal(sizes[letter], size)
        return self._plain()

    _op_unary_einsum = _op_einsum

    def _op_select_and_scatter(self) -> list[Ref]:
        """There is a source for each window."""
        shown = [self._dims(0), self._dims(1)]
        site = Site(self.symbols, self.node, shown)
        rank = len(shown[0])
        strides, wide = site.ints("window_strides", rank, 1), site.ints("window_dimensions", rank, 1)
        parts = (shown[0], shown[1], wide, strides, site.pairs("padding", rank))
        for size, source, window, stride, padding in zip(*parts, strict=True):
            count = windows(self.symbols, size, window, stride, (1, 1), padding, self.walk.plainly)
            self._equal(count, source)
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
        rows = list(zip(flat[::2], flat[1::2], strict=True))
        if not all(isinstance(one, int) for one in flat):
            rows = self._padded_image(rows)
        dims = convolved(Site(self.symbols, self.node, [self._dims(0), self._dims(1)]), rows)
        text = f"{self.node.attributes}, padding = {self._pairs(rows)}"
        return self._add(Node("convolution", text, tuple(self.operands[:2]), (), self._stated([dims])))

    def _padded_image(self, rows: list[tuple[Formula, Formula]]) -> list[tuple[Formula, Formula]]:
        """Padding that is computed is put around the image; what is left for the convolution to pad."""
        site = Site(self.symbols, self.node, ())
        image = site.labels()[0]
        steps = site.ints("lhs_dilation", len(rows), 1)
        sides = {str(axis): row for axis, row in enumerate(rows) if not all(isinstance(n, int) for n in row)}
        spread = {str(axis): step - 1 for axis, step in enumerate(steps)}
        low, high = ([sides.get(label, (0, 0))[side] for label in image] for side in (0, 1))
        interior: list[Formula] = [spread.get(label, 0) for label in image]
        for one in (*low, *high):
            self.walk.require(0, one, equal=False)
        dims = [padded(self.symbols, *one) for one in zip(self._dims(0), low, high, interior, strict=True)]
        # Few or no elements more would be other code at some samples: there are more, and these are cut off.
        few = any(
            self.symbols.range(self.symbols.plain(one))[1] is not None
            for one in (*low, *high)
            if not isinstance(one, int)
        )
        more = [_MORE if few and label in sides else 0 for label in image]
        low, high = (
            [self.symbols.apply("+", *one) for one in zip(side, more, strict=True)] for side in (low, high)
        )
        ends = [
            self.symbols.apply("+", self.symbols.formula(one), n) for one, n in zip(dims, more, strict=True)
        ]
        parts = zip(self._dims(0), low, high, interior, strict=True)
        kind = self.block.viewed(self.operands[0])
        wide = kind._replace(dims=tuple(padded(self.symbols, *one) for one in parts))
        names = ("edge_padding_high", "edge_padding_low", "interior_padding")
        lists = zip(names, (high, low, interior), strict=True)
        text = ", ".join(f"{name} = {self._list(one)}" for name, one in lists)
        operands = (self.operands[0], self._zero(kind.element))
        whole = self._add(Node("pad", text, operands, (), (wide,)))
        names = ("start_indices", "limit_indices", "strides")
        lists = zip(names, (more, ends, [1] * len(more)), strict=True)
        text = ", ".join(f"{name} = {self._list(one)}" for name, one in lists)
        cut = Node("slice", text, tuple(whole), (), (kind._replace(dims=tuple(dims)),))
        (self.operands[0],) = self._add(cut)
        bare = re.sub(r"lhs_dilation = array<i64: [^>]*>(, )?", "", self.node.attributes).removesuffix(", ")
        self.node = self.node._replace(attributes=bare)
        return [(0, 0) if str(axis) in sides else row for axis, row in enumerate(rows)]
