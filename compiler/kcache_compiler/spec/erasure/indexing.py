"""Shape rules of what takes, joins and puts parts of tensors."""

from __future__ import annotations

from kcache_compiler.mlir.context import native_stablehlo
from kcache_compiler.spec.erasure.step import Dims, Step
from kcache_compiler.spec.graph.nodes import DYNAMIC


def concatenate(step: Step) -> None:
    """All dims agree but the one along which the operands are joined, which keeps its sizes."""
    along: int = step.attributes["dimension"].value
    (result,) = step.results
    for dims in step.operands:
        for d, (a, b) in enumerate(zip(dims, result, strict=True)):
            if d != along or len(step.operands) == 1:
                step.same(a, b)
            else:
                step.pin((a, b))
    if len(step.operands) == 1:
        step.loose_out = list(step.loose_in)


def slice(step: Step) -> None:
    """Dims that are taken whole agree; the others keep their sizes."""
    (operand,), (result,) = step.operands, step.results
    starts, strides = step.ints("start_indices"), step.ints("strides")
    for a, b, start, stride in zip(operand, result, starts, strides, strict=True):
        whole = start == 0 and stride == 1 and step.solver.size(a) == step.solver.size(b) != DYNAMIC
        if whole:
            step.same(a, b)
        else:
            step.pin((a, b))


def dynamic_slice(step: Step) -> None:
    """Dims that are taken whole agree; of the others the slice keeps its size, the operand is free."""
    operand, (result,) = step.operands[0], step.results
    for a, b in zip(operand, result, strict=True):
        _whole_or_part(step, a, b)


def _whole_or_part(step: Step, whole: int, part: int) -> None:
    if step.solver.size(whole) == step.solver.size(part) != DYNAMIC:
        step.same(whole, part)
    else:
        step.pin((part,))


def dynamic_update_slice(step: Step) -> None:
    """The result has the operand's shape; dims that the update covers agree, the others keep its size."""
    operand, update, (result,) = step.operands[0], step.operands[1], step.results
    step.match(operand, result)
    for a, b in zip(operand, update, strict=True):
        _whole_or_part(step, a, b)


def pad(step: Step) -> None:
    """Dims without padding agree; the others keep their sizes."""
    operand, (result,) = step.operands[0], step.results
    edges = zip(
        step.ints("edge_padding_low"),
        step.ints("edge_padding_high"),
        step.ints("interior_padding"),
        strict=True,
    )
    for a, b, padding in zip(operand, result, edges, strict=True):
        if any(padding):
            step.pin((a, b))
        else:
            step.same(a, b)


def reverse(step: Step) -> None:
    """The result has the operand's shape; along loose dims nothing changes."""
    step.match(step.operands[0], step.results[0])


def gather(step: Step) -> None:
    """Dims of the indices are the result's batch dims; offset dims agree with dims that are taken whole."""
    numbers = native_stablehlo().GatherDimensionNumbers(step.attributes["dimension_numbers"])
    operand, indices, (result,) = step.operands[0], step.operands[1], step.results
    sizes = step.ints("slice_sizes")
    offsets: list[int] = list(numbers.offset_dims)
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [d for d in range(len(operand)) if d not in dropped]
    for d, at in zip(window, offsets, strict=True):
        if sizes[d] == step.solver.size(operand[d]):
            step.same(operand[d], result[at])
        else:
            step.pin((result[at],))
    batch = [i for i in range(len(indices)) if i != numbers.index_vector_dim]
    places = [d for d in range(len(result)) if d not in offsets]
    for i, at in zip(batch, places, strict=True):
        step.same(indices[i], result[at])
    for a, b in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        step.same(operand[int(a)], indices[int(b)])
    _pin_vector(step, indices, numbers.index_vector_dim)


def _pin_vector(step: Step, indices: Dims, at: int) -> None:
    """The number of indices that one look-up takes is part of the operation."""
    if at < len(indices):
        step.pin((indices[at],))


def scatter(step: Step) -> None:
    """Results have the inputs' shapes; dims of the indices are the updates' scatter dims."""
    numbers = native_stablehlo().ScatterDimensionNumbers(step.attributes["scatter_dimension_numbers"])
    count = len(step.results)
    inputs, indices, updates = step.operands[:count], step.operands[count], step.operands[count + 1 :]
    windows: list[int] = list(numbers.update_window_dims)
    dropped = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    for dims, update, result in zip(inputs, updates, step.results, strict=True):
        step.match(inputs[0], dims)
        step.match(dims, result)
        window = [d for d in range(len(dims)) if d not in dropped]
        for d, at in zip(window, windows, strict=True):
            _whole_or_part(step, dims[d], update[at])
        batch = [i for i in range(len(indices)) if i != numbers.index_vector_dim]
        places = [d for d in range(len(update)) if d not in windows]
        for i, at in zip(batch, places, strict=True):
            step.same(indices[i], update[at])
    for a, b in zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        step.same(inputs[0][int(a)], indices[int(b)])
    _pin_vector(step, indices, numbers.index_vector_dim)
