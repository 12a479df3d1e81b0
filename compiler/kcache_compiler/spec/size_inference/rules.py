"""Sizes of results, by operation, of the sizes of its operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.monomial import read_size
from kcache_compiler.spec.graph.nodes import Node
from kcache_compiler.spec.size_inference.symbols import Symbols, Unresolved

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Site:
    """An operation with the sizes of its operands."""

    symbols: Symbols
    node: Node
    operands: Sequence[Dims]

    def ints(self, name: str, count: int = 0, default: int = 0) -> list[int]:
        """An attribute that is a list of numbers; ``count`` times the default where it is absent."""
        found = re.search(rf"\b{name} = (?:array<i64: ([^>]*)>|\[([^\]]*)\])", self.node.attributes)
        if found is None:
            return [default] * count
        return [int(part) for part in (found[1] or found[2] or "").split(", ") if part]

    def sizes(self, name: str) -> list[int]:
        """An attribute that is a list of sizes."""
        found = re.search(rf"\b{name} = array<i64: ([^>]*)>", self.node.attributes)
        return [read_size(part) for part in found[1].split(", ")] if found else []

    def number(self, name: str, default: int = 0) -> int:
        """An attribute that is a number."""
        found = re.search(rf"\b{name} = (-?\d+)", self.node.attributes)
        return default if found is None else int(found[1])

    def pairs(self, name: str, count: int) -> list[tuple[int, int]]:
        """An attribute of rows of two; zeros where it is absent."""
        found = re.search(rf"\b{name} = dense<(.*?)> : tensor", self.node.attributes)
        flat = [int(part) for part in re.findall(r"-?\d+", found[1])] if found else [0]
        if len(flat) == 1:
            flat *= 2 * count
        return list(zip(flat[::2], flat[1::2], strict=True))

    def labels(self) -> list[list[str]]:
        """The labels of a convolution: of image, kernel and result."""
        found = re.search(r"#stablehlo\.conv<\[(.*?)\]x\[(.*?)\]->\[(.*?)\]>", self.node.attributes)
        assert found is not None
        return [part.split(", ") for part in found.groups()]


Rule = Callable[[Site], list[Dims]]


def first(site: Site) -> list[Dims]:
    """Each result has the shape of the first operand."""
    return [site.operands[0]] * len(site.node.results)


def each(site: Site) -> list[Dims]:
    """Each result has the shape of the operand in its place."""
    return list(site.operands[: len(site.node.results)])


def _second(site: Site) -> list[Dims]:
    return [site.operands[1]]


def _norm(site: Site) -> list[Dims]:
    feature = (site.operands[0][site.number("feature_index")],)
    return [site.operands[0], *[feature] * (len(site.node.results) - 1)]


def _concatenate(site: Site) -> list[Dims]:
    axis = site.number("dimension")
    total: Formula = 0
    for dims in site.operands:
        total = site.symbols.apply("+", total, site.symbols.formula(dims[axis]))
    whole = list(site.operands[0])
    whole[axis] = site.symbols.size(total)
    return [tuple(whole)]


def padded(symbols: Symbols, size: int, low: Formula, high: Formula, interior: Formula) -> int:
    """The size of an axis with padding; one that is spread has an element."""
    a, own = symbols.apply, symbols.formula(size)
    inner: Formula = 0
    if interior != 0 and own != 0:
        inner = a("*", symbols.natural(a("-", own, 1)), interior)
    return symbols.size(a("+", a("+", own, inner), a("+", low, high)))


def _pad(site: Site) -> list[Dims]:
    rank = len(site.operands[0])
    edges = [
        site.ints(f"{name}_padding{where}", rank)
        for name, where in (("edge", "_low"), ("edge", "_high"), ("interior", ""))
    ]
    return [
        tuple(padded(site.symbols, *one) for one in zip(site.operands[0], *edges, strict=True)),
    ]


def windows(
    symbols: Symbols,
    size: int,
    window: Formula,
    stride: int,
    spread: tuple[int, int],
    padding: tuple[Formula, Formula],
    plainly: bool = False,
) -> int:
    """How many windows there are along an axis; ``spread``: dilation of the axis and of the window.

    ``plainly``: as one quotient; an axis that lacks more than one element for a window is refused, whatever
    the stride.
    """
    a = symbols.apply
    whole = symbols.formula(size)
    if spread[0] != 1 and whole != 0:
        whole = a("+", a("*", symbols.natural(a("-", whole, 1)), spread[0]), 1)
    whole = a("+", whole, a("+", *padding))
    reach = a("+", a("*", a("-", window, 1), spread[1]), 1)
    free = a("+", a("-", whole, reach), 1)
    free = symbols.natural(free) if stride == 1 or plainly else a("max", free, 0)
    return symbols.size(symbols.quotient(free, stride) if plainly else a("ceildiv", free, stride))


def _reduce_window(site: Site) -> list[Dims]:
    shape = site.operands[0]
    rank = len(shape)
    strides, bases, taps = (
        site.ints(name, rank, 1) for name in ("window_strides", "base_dilations", "window_dilations")
    )
    window, padding = site.ints("window_dimensions"), site.pairs("padding", rank)
    made = tuple(
        windows(site.symbols, *one)
        for one in zip(shape, window, strides, zip(bases, taps, strict=True), padding, strict=True)
    )
    return [made] * len(site.node.results)


def convolved(site: Site, padding: Sequence[tuple[Formula, Formula]]) -> Dims:
    """The shape of a convolution's result."""
    image, kernel, result = site.labels()
    given = dict(zip(image, site.operands[0], strict=True))
    weights = dict(zip(kernel, site.operands[1], strict=True))
    count = len(image) - 2
    strides, left, right = (
        site.ints(name, count, 1) for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    symbols = site.symbols
    batches = symbols.apply("ceildiv", symbols.formula(given["b"]), site.number("batch_group_count", 1))
    sizes = {"b": symbols.size(batches), "f": weights["o"]}
    for axis in range(count):
        label = str(axis)
        reach = symbols.formula(weights[label])
        spread = (left[axis], right[axis])
        sizes[label] = windows(symbols, given[label], reach, strides[axis], spread, padding[axis])
    return tuple(sizes[label] for label in result)


def _convolution(site: Site) -> list[Dims]:
    return [convolved(site, site.pairs("padding", len(site.operands[0]) - 2))]


def gathered(site: Site, slices: Sequence[int]) -> Dims:
    """The shape of a gather's result."""
    offsets = site.ints("offset_dims")
    dropped = {*site.ints("collapsed_slice_dims"), *site.ints("operand_batching_dims")}
    vector = site.number("index_vector_dim")
    inner = iter([size for axis, size in enumerate(slices) if axis not in dropped])
    outer = iter([size for axis, size in enumerate(site.operands[1]) if axis != vector])
    rank = len(offsets) + len(site.operands[1]) - (vector < len(site.operands[1]))
    return tuple(next(inner) if axis in offsets else next(outer) for axis in range(rank))


def _gather(site: Site) -> list[Dims]:
    return [gathered(site, site.sizes("slice_sizes"))]


def _fft(site: Site) -> list[Dims]:
    lengths = site.ints("fft_length")
    shape = site.operands[0]
    made = [*shape[: len(shape) - len(lengths)], *lengths]
    if "RFFT" in site.node.attributes and "IRFFT" not in site.node.attributes:
        made[-1] = lengths[-1] // 2 + 1
    return [tuple(made)]


def _top_k(site: Site) -> list[Dims]:
    made = (*site.operands[0][:-1], site.number("k"))
    return [made, made]


def _reduce(site: Site) -> list[Dims]:
    """Kept axes; of a multiple reduction too."""
    reduced = set(site.ints("dimensions"))
    made = tuple(size for axis, size in enumerate(site.operands[0]) if axis not in reduced)
    return [made] * len(site.node.results)


def _bitcast(site: Site) -> list[Dims]:
    stated = site.node.results[0].dims or ()
    common = min(len(stated), len(site.operands[0]))
    return [(*site.operands[0][:common], *stated[common:])]


def _product(site: Site) -> list[Dims]:
    found = re.search(r"#stablehlo\.dot<(.*?)>", site.node.attributes)
    assert found is not None
    numbers = {
        name: [int(part) for part in text.split(", ") if part]
        for name, text in re.findall(r"(\w+) = \[([^\]]*)\]", found[1])
    }
    batch = numbers.get("lhs_batching_dimensions", [])
    made = [site.operands[0][axis] for axis in batch]
    for side, dims in zip(("lhs", "rhs"), site.operands, strict=False):
        gone = {
            *numbers.get(f"{side}_batching_dimensions", []),
            *numbers.get(f"{side}_contracting_dimensions", []),
        }
        made += [size for axis, size in enumerate(dims) if axis not in gone]
    return [tuple(made)]


def einsum_terms(node: Node) -> list[str]:
    """The letters of each operand of an einsum, then those of the result."""
    found = re.search(r'einsum_config = "([^"]*)"', node.attributes)
    assert found is not None
    given, _, result = found[1].replace(" ", "").partition("->")
    return [*given.split(","), result]


def _einsum(site: Site) -> list[Dims]:
    *given, result = einsum_terms(site.node)
    sizes: dict[str, int] = {}
    for letters, dims in zip(given, site.operands, strict=True):
        sizes |= dict(zip(letters, dims, strict=True))
    return [tuple(sizes[letter] for letter in result)]


def _index_select(site: Site) -> list[Dims]:
    dim, batch = site.number("dim"), site.number("batch_dims")
    operand, index = site.operands
    return [(*operand[:dim], *index[batch:], *operand[dim + 1 :])]


RULES: dict[str, Rule] = {
    "batch_norm_grad": _norm,
    "batch_norm_inference": first,
    "batch_norm_training": _norm,
    "bitcast_convert": _bitcast,
    "chlo.top_k": _top_k,
    "cholesky": first,
    "concatenate": _concatenate,
    "convolution": _convolution,
    "custom_call": first,
    "dot_general": _product,
    "dynamic_update_slice": first,
    "einsum": _einsum,
    "fft": _fft,
    "gather": _gather,
    "map": first,
    "optimization_barrier": each,
    "pad": _pad,
    "reduce": _reduce,
    "reduce_precision": first,
    "reduce_window": _reduce_window,
    "reverse": first,
    "scatter": each,
    "select_and_scatter": first,
    "sort": each,
    "torch_index_select": _index_select,
    "triangular_solve": _second,
    "unary_einsum": _einsum,
    "while": each,
}


def shapes(site: Site) -> list[Dims]:
    """The shapes of the results."""
    rule = RULES.get(site.node.op)
    if rule is None:
        raise Unresolved(site.node.op)
    return rule(site)
