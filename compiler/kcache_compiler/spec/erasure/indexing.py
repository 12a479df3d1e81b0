"""Shape rules of slices, updates, padding, concatenation, gather and scatter."""

from __future__ import annotations

from kcache_compiler.mlir.context import native_stablehlo
from kcache_compiler.spec.erasure.operation_dims import Dims, OperationDims
from kcache_compiler.spec.graph.native import integer
from kcache_compiler.spec.graph.nodes import DYNAMIC


def concatenate(op: OperationDims) -> None:
    """Constrain all dims but the concatenated one, which is pinned."""
    axis: int = integer(op.attributes, "dimension")
    (result,) = op.results
    for dims in op.operands:
        for d, (a, b) in enumerate(zip(dims, result, strict=True)):
            if d != axis or len(op.operands) == 1:
                op.same(a, b)
            else:
                op.pin((a, b))
    if len(op.operands) == 1:
        op.uniform_out = list(op.uniform_in)


def slice(op: OperationDims) -> None:
    """Constrain dims that are taken whole; pin the others."""
    (operand,), (result,) = op.operands, op.results
    starts, strides = op.ints("start_indices"), op.ints("strides")
    for a, b, start, stride in zip(operand, result, starts, strides, strict=True):
        whole = start == 0 and stride == 1 and op.size(a) == op.size(b) != DYNAMIC
        if whole:
            op.same(a, b)
        else:
            op.pin((a, b))


def dynamic_slice(op: OperationDims) -> None:
    """Constrain dims that are taken whole; of other dims, pin the slice's size only."""
    operand, (result,) = op.operands[0], op.results
    for a, b in zip(operand, result, strict=True):
        _whole_or_part(op, a, b)


def _whole_or_part(op: OperationDims, whole: int, part: int) -> None:
    if op.size(whole) == op.size(part) != DYNAMIC:
        op.same(whole, part)
    else:
        op.pin((part,))


def dynamic_update_slice(op: OperationDims) -> None:
    """Constrain the result to the operand, and covered dims of the update; pin its other dims."""
    operand, update, (result,) = op.operands[0], op.operands[1], op.results
    op.match(operand, result)
    for a, b in zip(operand, update, strict=True):
        _whole_or_part(op, a, b)


def pad(op: OperationDims) -> None:
    """Constrain dims without padding; pin the others."""
    operand, (result,) = op.operands[0], op.results
    edges = zip(
        op.ints("edge_padding_low"),
        op.ints("edge_padding_high"),
        op.ints("interior_padding"),
        strict=True,
    )
    for a, b, padding in zip(operand, result, edges, strict=True):
        if any(padding):
            op.pin((a, b))
        else:
            op.same(a, b)


def reverse(op: OperationDims) -> None:
    """Constrain the result to the operand."""
    op.match(op.operands[0], op.results[0])


def gather(op: OperationDims) -> None:
    """Constrain batch dims to the indices, and offset dims to operand dims that are taken whole."""
    numbers = native_stablehlo().GatherDimensionNumbers(op.attributes["dimension_numbers"])
    operand, indices, (result,) = op.operands[0], op.operands[1], op.results
    sizes = op.ints("slice_sizes")
    offsets: list[int] = list(numbers.offset_dims)
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [d for d in range(len(operand)) if d not in dropped]
    for d, target in zip(window, offsets, strict=True):
        if sizes[d] == op.size(operand[d]):
            op.same(operand[d], result[target])
        else:
            op.pin((result[target],))
    batch = [i for i in range(len(indices)) if i != numbers.index_vector_dim]
    batch_dims = [d for d in range(len(result)) if d not in offsets]
    for i, target in zip(batch, batch_dims, strict=True):
        op.same(indices[i], result[target])
    for a, b in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        op.same(operand[int(a)], indices[int(b)])
    _pin_vector(op, indices, numbers.index_vector_dim)


def _pin_vector(op: OperationDims, indices: Dims, axis: int) -> None:
    """Pin the length of an index vector, which is part of the operation."""
    if axis < len(indices):
        op.pin((indices[axis],))


def scatter(op: OperationDims) -> None:
    """Constrain results to inputs, scatter dims to the indices, and covered window dims."""
    numbers = native_stablehlo().ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    count = len(op.results)
    inputs, indices, updates = op.operands[:count], op.operands[count], op.operands[count + 1 :]
    windows: list[int] = list(numbers.update_window_dims)
    dropped = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    for dims, update, result in zip(inputs, updates, op.results, strict=True):
        op.match(inputs[0], dims)
        op.match(dims, result)
        window = [d for d in range(len(dims)) if d not in dropped]
        for d, target in zip(window, windows, strict=True):
            _whole_or_part(op, dims[d], update[target])
        batch = [i for i in range(len(indices)) if i != numbers.index_vector_dim]
        batch_dims = [d for d in range(len(update)) if d not in windows]
        for i, target in zip(batch, batch_dims, strict=True):
            op.same(indices[i], update[target])
    for a, b in zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        op.same(inputs[0][int(a)], indices[int(b)])
    _pin_vector(op, indices, numbers.index_vector_dim)
