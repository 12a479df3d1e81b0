"""A canonical graph evaluated with NumPy, floats in f64: what kernels of open sizes are compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kcache_compiler.shapes.monomial import evaluate
from kcache_compiler.spec.dynamic_graph import substitute
from kcache_compiler.spec.graph.nodes import Graph, Node, Ref, Region, ValueType, spread_size
from kcache_compiler.spec.rendering.contraction import read_ints
from kcache_compiler.spec.rendering.dynamic import read_extent
from tests.compiler.codegen_harness import NUMPY

Array = Any

_ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.logical_and,
    "cosine": np.cos,
    "divide": np.divide,
    "exponential": np.exp,
    "log": np.log,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negate": np.negative,
    "power": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select": np.where,
    "sine": np.sin,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
    "tanh": np.tanh,
}
_COMPARE = {"LT": np.less, "LE": np.less_equal, "EQ": np.equal, "NE": np.not_equal}
_COMBINE: dict[str, Any] = {"add": np.add, "maximum": np.maximum}


def evaluate_graph(graph: Graph, sizes: Mapping[int, int], arguments: Sequence[Array]) -> list[Array]:
    """The results of a graph at these sizes of its symbols, by index."""
    body = substitute(graph, sizes).body
    with np.errstate(all="ignore"):
        return _Evaluation(body, sizes, arguments).results()


def _wide(values: Array) -> Array:
    return values.astype(np.float64) if values.dtype.kind == "f" else values


class _Evaluation:
    def __init__(self, body: Region, sizes: Mapping[int, int], arguments: Sequence[Array]) -> None:
        self.body = body
        self.sizes = sizes
        self.values = [[_wide(np.asarray(array))] for array in arguments]
        for node in body.nodes:
            self.values.append([self._node(node)])

    def results(self) -> list[Array]:
        return [self._shown(ref) for ref in self.body.results]

    def _shown(self, ref: Ref) -> Array:
        source = self.values[ref.node][ref.result]
        used = [entry for entry in ref.view if entry >= 0]
        gone = [axis for axis in range(source.ndim) if axis not in used]
        index = tuple(0 if axis in gone else slice(None) for axis in range(source.ndim))
        kept = [axis for axis in range(source.ndim) if axis in used]
        taken = source[index].transpose([kept.index(entry) for entry in used])
        spread = tuple(slice(None) if entry >= 0 else None for entry in ref.view)
        shape = tuple(spread_size(e) if e < 0 else source.shape[e] for e in ref.view)
        return np.broadcast_to(taken[spread], shape)

    def _node(self, node: Node) -> Array:
        type = node.results[0]
        dims = type.dims or ()
        if node.op == "constant":
            raw = np.frombuffer(bytes.fromhex(node.attributes), NUMPY[type.element])
            return _wide(np.broadcast_to(raw[0], dims) if raw.size == 1 else raw.reshape(dims))
        if node.op == "extent":
            size, less, inverse = read_extent(node.attributes)
            number = np.float64(evaluate(size, self.sizes) - less)
            return (1 / number if inverse else number).astype(_kind(type))
        operands = [self._shown(ref) for ref in node.operands]
        if node.op in _ELEMENTWISE:
            return np.asarray(_ELEMENTWISE[node.op](*operands), _kind(type))
        match node.op:
            case "compare":
                return _COMPARE[node.attributes](*operands)
            case "convert":
                return operands[0].astype(_kind(type))
            case "iota":
                return np.arange(*dims, dtype=_kind(type))
            case "reshape":
                return operands[0].reshape(dims)
            case "concatenate":
                return np.concatenate(operands, read_axis(node.attributes))
            case "slice":
                numbers = [_numbers(node, f"{name}_indices") for name in ("start", "limit")]
                strides = _numbers(node, "strides") or [1] * len(dims)
                return operands[0][tuple(map(slice, *numbers, strides))]
            case "reduce":
                return _reduce(node, operands)
            case "reduce_window":
                return _windows(node, operands) if 0 not in dims else np.zeros(dims)
            case "gather":
                return _gather(node, operands, dims)
            case "convolution":
                return _convolution(node, operands, dims)
            case _:
                raise NotImplementedError(node.op)


def _kind(type: ValueType) -> Any:
    return np.float64 if type.element in ("f16", "bf16", "f32", "f64") else NUMPY[type.element]


def read_axis(attributes: str) -> int:
    return int(attributes.removeprefix("dimension = ").partition(" ")[0])


def _numbers(node: Node, name: str) -> list[int]:
    match = re.search(rf"{name} = (?:array<i64: ([^>]*)>|\[([^\]]*)\])", node.attributes)
    return [int(part) for part in (match[1] or match[2]).split(", ")] if match else []


def _number(node: Node, name: str, otherwise: int) -> int:
    match = re.search(rf"{name} = (\d+)", node.attributes)
    return int(match[1]) if match else otherwise


def _reduce(node: Node, operands: list[Array]) -> Array:
    combiner, _, dims = node.attributes.rpartition("dimensions = ")
    op = combiner.removeprefix("combiner = ").removesuffix(", ")
    source, initial = operands
    axes = tuple(read_ints(dims))
    return _COMBINE[op].reduce(source, axis=axes, initial=initial[()])


def _windows(node: Node, operands: list[Array]) -> Array:
    """Windows without padding."""
    assert "padding" not in node.attributes
    assert "dilation" not in node.attributes
    (inner,) = node.regions[0].nodes
    window, steps = _numbers(node, "window_dimensions"), _numbers(node, "window_strides")
    seen = np.lib.stride_tricks.sliding_window_view(operands[0], window)[
        tuple(slice(None, None, s) for s in steps)
    ]
    axes = tuple(range(operands[0].ndim, 2 * operands[0].ndim))
    return _COMBINE[inner.op].reduce(seen, axis=axes, initial=operands[1][()])


def _gather(node: Node, operands: list[Array], dims: tuple[int, ...]) -> Array:
    source, indices = operands
    sizes = _numbers(node, "slice_sizes")
    offsets, collapsed = _numbers(node, "offset_dims"), _numbers(node, "collapsed_slice_dims")
    batching, batched_by = (
        _numbers(node, "operand_batching_dims"),
        _numbers(node, "start_indices_batching_dims"),
    )
    starts, vector = _numbers(node, "start_index_map"), _number(node, "index_vector_dim", 0)
    if vector == indices.ndim:
        indices = indices[..., None]
    indices = np.moveaxis(indices, vector, -1)
    batch = [dim for dim in range(len(dims)) if dim not in offsets]
    result = np.empty(dims, source.dtype)
    for where in np.ndindex(*indices.shape[:-1]):
        start = [0] * source.ndim
        for dim, index in zip(starts, indices[where], strict=True):
            start[dim] = min(max(int(index), 0), source.shape[dim] - sizes[dim])
        for dim, by in zip(batching, batched_by, strict=True):
            start[dim] = where[by - (by > vector)]
        piece = source[tuple(slice(a, a + size) for a, size in zip(start, sizes, strict=True))]
        place: list[Any] = [slice(None)] * len(dims)
        for dim, position in zip(batch, where, strict=True):
            place[dim] = position
        result[tuple(place)] = np.squeeze(piece, tuple(sorted({*collapsed, *batching})))
    return result


def _convolution(node: Node, operands: list[Array], dims: tuple[int, ...]) -> Array:
    """Over two spatial dims, without dilation."""
    assert not re.search("dilation|reversal", node.attributes)
    source, kernel, target = re.findall(r"\[([^\]]*)\]", node.attributes.partition("#stablehlo.conv<")[2])[:3]
    x = operands[0].transpose([source.split(", ").index(name) for name in "bf01"])
    k = operands[1].transpose([kernel.split(", ").index(name) for name in "oi01"])
    padding = re.search(r"padding = dense<([^>]*)>", node.attributes)
    pads = [int(number) for number in re.findall(r"-?\d+", padding[1])] if padding else [0]
    pads = pads * 4 if len(pads) == 1 else pads
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[1]), (pads[2], pads[3])])
    steps = _numbers(node, "window_strides") or [1, 1]
    order = [target.split(", ").index(name) for name in "bf01"]
    rows, columns = dims[order[2]], dims[order[3]]
    groups = _number(node, "feature_group_count", 1)
    parts: list[Array] = []
    for own, filters in zip(np.split(x, groups, 1), np.split(k, groups, 0), strict=True):
        total = np.zeros((x.shape[0], filters.shape[0], rows, columns))
        for i, j in np.ndindex(*k.shape[2:]):
            seen = own[:, :, i : i + steps[0] * rows : steps[0], j : j + steps[1] * columns : steps[1]]
            total += np.einsum("bihw,oi->bohw", seen[:, :, :rows, :columns], filters[:, :, i, j])
        parts.append(total)
    return np.concatenate(parts, 1).transpose(np.argsort(order))
