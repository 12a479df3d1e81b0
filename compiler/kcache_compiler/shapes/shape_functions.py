"""Shape functions: the shapes of an operation's results from those of its operands, by operation.

Source: the "Constraints" and "Types" of each operation in the StableHLO specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kcache_compiler.shapes.formula import Formula, UnresolvedSize
from kcache_compiler.shapes.monomial import read_size
from kcache_compiler.shapes.symbols import SymbolTable

#: A shape: static sizes and symbolic ones, as ``shapes.monomial`` encodes them.
Dims = tuple[int, ...]


@dataclass(frozen=True)
class OperationShapes:
    """An operation by name and canonical attributes, the shapes of its operands, and the stated result
    shapes.
    """

    symbols: SymbolTable
    op: str
    attributes: str
    operands: Sequence[Dims]
    results: Sequence[Dims | None]

    def ints(self, name: str, count: int = 0, default: int = 0) -> list[int]:
        """Return an attribute that is a list of integers; ``count`` times the default where it is absent."""
        match = re.search(rf"\b{name} = (?:array<i64: ([^>]*)>|\[([^\]]*)\])", self.attributes)
        if match is None:
            return [default] * count
        return [int(part) for part in (match[1] or match[2] or "").split(", ") if part]

    def sizes(self, name: str) -> list[int]:
        """Return an attribute that is a list of sizes; empty where it is absent."""
        match = re.search(rf"\b{name} = array<i64: ([^>]*)>", self.attributes)
        return [read_size(part) for part in match[1].split(", ")] if match else []

    def number(self, name: str, default: int = 0) -> int:
        """Return an integer attribute."""
        match = re.search(rf"\b{name} = (-?\d+)", self.attributes)
        return default if match is None else int(match[1])

    def pairs(self, name: str, count: int) -> list[tuple[int, int]]:
        """Return an attribute of ``count`` rows of two integers; zeros where it is absent."""
        match = re.search(rf"\b{name} = dense<(.*?)> : tensor", self.attributes)
        flat = [int(part) for part in re.findall(r"-?\d+", match[1])] if match else [0]
        if len(flat) == 1:
            flat *= 2 * count
        return list(zip(flat[::2], flat[1::2], strict=True))

    def labels(self) -> list[list[str]]:
        """Return the dimension labels of a convolution: of input, kernel and output."""
        match = re.search(r"#stablehlo\.conv<\[(.*?)\]x\[(.*?)\]->\[(.*?)\]>", self.attributes)
        assert match is not None
        return [part.split(", ") for part in match.groups()]

    def einsum_labels(self) -> list[str]:
        """Return the labels of each operand of an einsum, then those of the result."""
        match = re.search(r'einsum_config = "([^"]*)"', self.attributes)
        assert match is not None
        operands, _, result = match[1].replace(" ", "").partition("->")
        return [*operands.split(","), result]


ShapeFunction = Callable[[OperationShapes], list[Dims]]


def _same_as_first(shapes: OperationShapes) -> list[Dims]:
    return [shapes.operands[0]] * len(shapes.results)


def _same_as_operands(shapes: OperationShapes) -> list[Dims]:
    return list(shapes.operands[: len(shapes.results)])


def _same_as_second(shapes: OperationShapes) -> list[Dims]:
    return [shapes.operands[1]]


def _batch_norm(shapes: OperationShapes) -> list[Dims]:
    features = (shapes.operands[0][shapes.number("feature_index")],)
    return [shapes.operands[0], *[features] * (len(shapes.results) - 1)]


def _concatenate(shapes: OperationShapes) -> list[Dims]:
    axis = shapes.number("dimension")
    total: Formula = 0
    for dims in shapes.operands:
        total = shapes.symbols.apply("+", total, shapes.symbols.formula(dims[axis]))
    result = list(shapes.operands[0])
    result[axis] = shapes.symbols.size(total)
    return [tuple(result)]


def padded_size(symbols: SymbolTable, size: int, low: Formula, high: Formula, interior: Formula) -> int:
    """Return the size of a padded axis; one with interior padding has at least one element."""
    a, length = symbols.apply, symbols.formula(size)
    inner: Formula = 0
    if interior != 0 and length != 0:
        inner = a("*", symbols.nonnegative(a("-", length, 1)), interior)
    return symbols.size(a("+", a("+", length, inner), a("+", low, high)))


def _pad(shapes: OperationShapes) -> list[Dims]:
    rank = len(shapes.operands[0])
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    rows = zip(shapes.operands[0], *(shapes.ints(name, rank) for name in names), strict=True)
    return [tuple(padded_size(shapes.symbols, *row) for row in rows)]


def window_count(
    symbols: SymbolTable,
    size: int,
    window: Formula,
    stride: int,
    dilation: tuple[int, int],
    padding: tuple[Formula, Formula],
    unclamped: bool = False,
) -> int:
    """Return the number of windows along an axis; ``dilation`` is that of the axis and of the window.

    With ``unclamped`` or stride 1, the length of the axis minus that of the dilated window, plus 1, is
    required to be 0 or more; otherwise an axis that is shorter than the window has no windows. The
    count of ``unclamped`` is a separate symbol.
    """
    a = symbols.apply
    length = symbols.formula(size)
    if dilation[0] != 1 and length != 0:
        length = a("+", a("*", symbols.nonnegative(a("-", length, 1)), dilation[0]), 1)
    length = a("+", length, a("+", *padding))
    dilated_window = a("+", a("*", a("-", window, 1), dilation[1]), 1)
    positions = a("+", a("-", length, dilated_window), 1)
    positions = symbols.nonnegative(positions) if stride == 1 or unclamped else a("max", positions, 0)
    if unclamped:
        return symbols.size(symbols.opaque_quotient(positions, stride))
    return symbols.size(a("ceildiv", positions, stride))


def _reduce_window(shapes: OperationShapes) -> list[Dims]:
    operand = shapes.operands[0]
    rank = len(operand)
    names = ("window_strides", "base_dilations", "window_dilations")
    strides, base, window = (shapes.ints(name, rank, 1) for name in names)
    sizes, padding = shapes.ints("window_dimensions"), shapes.pairs("padding", rank)
    rows = zip(operand, sizes, strides, zip(base, window, strict=True), padding, strict=True)
    return [tuple(window_count(shapes.symbols, *row) for row in rows)] * len(shapes.results)


def convolution_shape(shapes: OperationShapes, padding: Sequence[tuple[Formula, Formula]]) -> Dims:
    """Return the shape of a convolution's result."""
    image, kernel, result = shapes.labels()
    inputs = dict(zip(image, shapes.operands[0], strict=True))
    weights = dict(zip(kernel, shapes.operands[1], strict=True))
    count = len(image) - 2
    names = ("window_strides", "lhs_dilation", "rhs_dilation")
    strides, left, right = (shapes.ints(name, count, 1) for name in names)
    symbols = shapes.symbols
    batches = symbols.apply("ceildiv", symbols.formula(inputs["b"]), shapes.number("batch_group_count", 1))
    sizes = {"b": symbols.size(batches), "f": weights["o"]}
    for axis in range(count):
        label = str(axis)
        window = symbols.formula(weights[label])
        dilation = (left[axis], right[axis])
        sizes[label] = window_count(symbols, inputs[label], window, strides[axis], dilation, padding[axis])
    return tuple(sizes[label] for label in result)


def _convolution(shapes: OperationShapes) -> list[Dims]:
    return [convolution_shape(shapes, shapes.pairs("padding", len(shapes.operands[0]) - 2))]


def gather_shape(shapes: OperationShapes, slice_sizes: Sequence[int]) -> Dims:
    """Return the shape of a gather's result."""
    offsets = shapes.ints("offset_dims")
    dropped = {*shapes.ints("collapsed_slice_dims"), *shapes.ints("operand_batching_dims")}
    vector = shapes.number("index_vector_dim")
    indices = shapes.operands[1]
    inner = iter([size for axis, size in enumerate(slice_sizes) if axis not in dropped])
    outer = iter([size for axis, size in enumerate(indices) if axis != vector])
    rank = len(offsets) + len(indices) - (vector < len(indices))
    return tuple(next(inner) if axis in offsets else next(outer) for axis in range(rank))


def _gather(shapes: OperationShapes) -> list[Dims]:
    return [gather_shape(shapes, shapes.sizes("slice_sizes"))]


def _fft(shapes: OperationShapes) -> list[Dims]:
    lengths = shapes.ints("fft_length")
    operand = shapes.operands[0]
    result = [*operand[: len(operand) - len(lengths)], *lengths]
    if "RFFT" in shapes.attributes and "IRFFT" not in shapes.attributes:
        result[-1] = lengths[-1] // 2 + 1
    return [tuple(result)]


def _top_k(shapes: OperationShapes) -> list[Dims]:
    result = (*shapes.operands[0][:-1], shapes.number("k"))
    return [result, result]


def _reduce(shapes: OperationShapes) -> list[Dims]:
    reduced = set(shapes.ints("dimensions"))
    result = tuple(size for axis, size in enumerate(shapes.operands[0]) if axis not in reduced)
    return [result] * len(shapes.results)


def _bitcast_convert(shapes: OperationShapes) -> list[Dims]:
    stated = shapes.results[0] or ()
    common = min(len(stated), len(shapes.operands[0]))
    return [(*shapes.operands[0][:common], *stated[common:])]


def _dot_general(shapes: OperationShapes) -> list[Dims]:
    match = re.search(r"#stablehlo\.dot<(.*?)>", shapes.attributes)
    assert match is not None
    axes = {
        name: [int(part) for part in text.split(", ") if part]
        for name, text in re.findall(r"(\w+) = \[([^\]]*)\]", match[1])
    }
    result = [shapes.operands[0][axis] for axis in axes.get("lhs_batching_dimensions", [])]
    for side, dims in zip(("lhs", "rhs"), shapes.operands, strict=False):
        dropped = {
            *axes.get(f"{side}_batching_dimensions", []),
            *axes.get(f"{side}_contracting_dimensions", []),
        }
        result += [size for axis, size in enumerate(dims) if axis not in dropped]
    return [tuple(result)]


def _einsum(shapes: OperationShapes) -> list[Dims]:
    *operands, result = shapes.einsum_labels()
    sizes: dict[str, int] = {}
    for labels, dims in zip(operands, shapes.operands, strict=True):
        sizes |= dict(zip(labels, dims, strict=True))
    return [tuple(sizes[label] for label in result)]


def _torch_index_select(shapes: OperationShapes) -> list[Dims]:
    dim, batch = shapes.number("dim"), shapes.number("batch_dims")
    operand, index = shapes.operands
    return [(*operand[:dim], *index[batch:], *operand[dim + 1 :])]


SHAPE_FUNCTIONS: dict[str, ShapeFunction] = {
    "batch_norm_grad": _batch_norm,
    "batch_norm_inference": _same_as_first,
    "batch_norm_training": _batch_norm,
    "bitcast_convert": _bitcast_convert,
    "chlo.top_k": _top_k,
    "cholesky": _same_as_first,
    "concatenate": _concatenate,
    "convolution": _convolution,
    "custom_call": _same_as_first,
    "dot_general": _dot_general,
    "dynamic_update_slice": _same_as_first,
    "einsum": _einsum,
    "fft": _fft,
    "gather": _gather,
    "map": _same_as_first,
    "optimization_barrier": _same_as_operands,
    "pad": _pad,
    "reduce": _reduce,
    "reduce_precision": _same_as_first,
    "reduce_window": _reduce_window,
    "reverse": _same_as_first,
    "scatter": _same_as_operands,
    "select_and_scatter": _same_as_first,
    "sort": _same_as_operands,
    "torch_index_select": _torch_index_select,
    "triangular_solve": _same_as_second,
    "unary_einsum": _einsum,
    "while": _same_as_operands,
}


def result_shapes(shapes: OperationShapes) -> list[Dims]:
    """Return the shapes of the results; raises ``UnresolvedSize`` without a shape function."""
    function = SHAPE_FUNCTIONS.get(shapes.op)
    if function is None:
        raise UnresolvedSize(shapes.op)
    return function(shapes)
