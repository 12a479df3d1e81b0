"""Gather and scatter in the general form of StableHLO."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, combiner, integers, scalar_type
from kcache_compiler.frontends.graph.size_expression import Size
from kcache_compiler.frontends.graph.values import Type, Value, axes_of, require_static, same_dtype

#: Kind of scatter -> the StableHLO operation that combines an element with its update, if any.
SCATTER_COMBINERS = {
    "replace": "",
    "add": "add",
    "multiply": "multiply",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
}


def gather(
    e: Emitter,
    x: Value,
    indices: Value,
    *,
    offset_dims: tuple[int, ...],
    collapsed_slice_dims: tuple[int, ...],
    start_index_map: tuple[int, ...],
    index_vector_dim: int,
    slice_sizes: tuple[int, ...],
    operand_batching_dims: tuple[int, ...] = (),
    start_indices_batching_dims: tuple[int, ...] = (),
    indices_are_sorted: bool = False,
) -> Value:
    """Emit a gather in the general form of StableHLO."""
    rank = len(x.dims)
    _check_ascending(
        rank, collapsed_slice_dims=collapsed_slice_dims, operand_batching_dims=operand_batching_dims
    )
    _check_batching(x, indices, operand_batching_dims, start_indices_batching_dims, index_vector_dim)
    if len(slice_sizes) != rank:
        raise InvalidProgram(f"slice_sizes has {len(slice_sizes)} entries, but {x} has {rank} axes")
    for axis, (dim, slice_size) in enumerate(zip(x.dims, slice_sizes, strict=True)):
        if slice_size != 1:
            dim = require_static(x, axis, "gather needs slices of size 1 along it")
        if slice_size < 0 or (isinstance(dim, int) and slice_size > dim):
            raise InvalidProgram(f"slice_sizes has {slice_size} for axis {axis} of {x}")
    removed = {*collapsed_slice_dims, *operand_batching_dims}
    if len(removed) != len(collapsed_slice_dims) + len(operand_batching_dims):
        raise InvalidProgram("collapsed_slice_dims and operand_batching_dims contain an axis twice")
    if any(slice_sizes[axis] > 1 for axis in removed):
        raise InvalidProgram(
            "slice_sizes must be at most 1 along collapsed_slice_dims and operand_batching_dims"
        )
    offsets: list[Size] = [slice_size for axis, slice_size in enumerate(slice_sizes) if axis not in removed]
    _check_index_map("start_index_map", x, indices, start_index_map, index_vector_dim)
    batch = _drop_axis(indices.dims, index_vector_dim)
    dims = _interleave("offset_dims", offset_dims, offsets, batch)
    dimension_numbers = _dimension_numbers(
        offset_dims=offset_dims,
        collapsed_slice_dims=collapsed_slice_dims,
        operand_batching_dims=operand_batching_dims,
        start_indices_batching_dims=start_indices_batching_dims,
        start_index_map=start_index_map,
    )
    attributes = (
        f"dimension_numbers = #stablehlo.gather<{dimension_numbers}index_vector_dim = {index_vector_dim}>, "
        f"slice_sizes = {integers(slice_sizes)}, indices_are_sorted = {_bool(indices_are_sorted)}"
    )
    return e.emit("gather", (x, indices), Type(x.dtype, dims), attributes)


def scatter(
    e: Emitter,
    x: Value,
    indices: Value,
    updates: Value,
    *,
    kind: str,
    update_window_dims: tuple[int, ...],
    inserted_window_dims: tuple[int, ...],
    scatter_dims_to_operand_dims: tuple[int, ...],
    index_vector_dim: int,
    input_batching_dims: tuple[int, ...] = (),
    scatter_indices_batching_dims: tuple[int, ...] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Value:
    """Emit a scatter in the general form of StableHLO, with a combiner by name."""
    same_dtype(x, updates)
    rank = len(x.dims)
    _check_ascending(rank, inserted_window_dims=inserted_window_dims, input_batching_dims=input_batching_dims)
    _check_batching(x, indices, input_batching_dims, scatter_indices_batching_dims, index_vector_dim)
    _check_index_map(
        "scatter_dims_to_operand_dims", x, indices, scatter_dims_to_operand_dims, index_vector_dim
    )
    removed = {*inserted_window_dims, *input_batching_dims}
    window = [axis for axis in range(rank) if axis not in removed]
    batch = _drop_axis(indices.dims, index_vector_dim)
    window_dims = axes_of(update_window_dims, len(updates.dims), "update_window_dims")
    _check_ascending(len(updates.dims), update_window_dims=update_window_dims)
    scatter_sizes = [size for axis, size in enumerate(updates.dims) if axis not in window_dims]
    if len(window_dims) != len(window) or scatter_sizes != batch:
        raise InvalidProgram(
            f"the updates {updates} do not fit: they need {len(window)} window axes, and the sizes "
            f"{[str(size) for size in batch]} of the indices {indices}"
        )
    for update_axis, axis in zip(window_dims, window, strict=True):
        update_dim, dim = updates.dims[update_axis], x.dims[axis]
        if update_dim != dim and not (
            isinstance(update_dim, int) and isinstance(dim, int) and update_dim <= dim
        ):
            raise InvalidProgram(
                f"axis {update_axis} of the updates {updates} does not fit axis {axis} of {x}"
            )
    dimension_numbers = _dimension_numbers(
        update_window_dims=update_window_dims,
        inserted_window_dims=inserted_window_dims,
        input_batching_dims=input_batching_dims,
        scatter_indices_batching_dims=scatter_indices_batching_dims,
        scatter_dims_to_operand_dims=scatter_dims_to_operand_dims,
    )
    attributes = (
        f"scatter_dimension_numbers = #stablehlo.scatter<{dimension_numbers}index_vector_dim = "
        f"{index_vector_dim}>, "
        f"indices_are_sorted = {_bool(indices_are_sorted)}, unique_indices = {_bool(unique_indices)}"
    )
    region = _replacement_region(x.dtype) if kind == "replace" else combiner(SCATTER_COMBINERS[kind], x.dtype)
    return e.emit("scatter", (x, indices, updates), x.type, attributes, region)


def _check_ascending(rank: int, **lists: tuple[int, ...]) -> None:
    for name, axes in lists.items():
        if list(axes) != sorted(set(axes)) or any(not 0 <= axis < rank for axis in axes):
            raise InvalidProgram(
                f"{name} is {list(axes)}: it must list axes from 0 to {rank - 1} in ascending order"
            )


def _check_batching(
    x: Value,
    indices: Value,
    operand_dims: tuple[int, ...],
    index_dims: tuple[int, ...],
    index_vector_dim: int,
) -> None:
    if not 0 <= index_vector_dim <= len(indices.dims):
        raise InvalidProgram(
            f"index_vector_dim is {index_vector_dim}, but the indices {indices} have rank {len(indices.dims)}"
        )
    dims = axes_of(index_dims, len(indices.dims), "batching axes of the indices")
    sizes = [indices.dims[axis] for axis in dims]
    if sizes != [x.dims[axis] for axis in operand_dims] or index_vector_dim in dims:
        raise InvalidProgram(f"the batching axes of {x} and of the indices {indices} differ")


def _check_index_map(
    name: str, x: Value, indices: Value, axes: tuple[int, ...], index_vector_dim: int
) -> None:
    axes_of(axes, len(x.dims), name)
    length = indices.dims[index_vector_dim] if index_vector_dim < len(indices.dims) else 1
    if length != len(axes):
        raise InvalidProgram(f"{name} has {len(axes)} entries, but an index of {indices} has {length}")


def _drop_axis(dims: Sequence[Size], axis: int) -> list[Size]:
    return [size for index, size in enumerate(dims) if index != axis]


def _interleave(
    name: str, axes: tuple[int, ...], slice_dims: Sequence[Size], batch: Sequence[Size]
) -> tuple[Size, ...]:
    rank = len(slice_dims) + len(batch)
    if len(axes) != len(slice_dims):
        raise InvalidProgram(f"{name} has {len(axes)} entries, but a slice keeps {len(slice_dims)} axes")
    _check_ascending(rank, **{name: axes})
    offsets, batch_sizes = iter(slice_dims), iter(batch)
    return tuple(next(offsets) if axis in axes else next(batch_sizes) for axis in range(rank))


def _dimension_numbers(**lists: tuple[int, ...]) -> str:
    return "".join(f"{name} = {list(axes)}, " for name, axes in lists.items() if axes)


def _replacement_region(dtype: str) -> str:
    scalar = scalar_type(dtype)
    return f'^bb0(%l: {scalar}, %r: {scalar}):\n  "stablehlo.return"(%r) : ({scalar}) -> ()'


def _bool(value: bool) -> str:
    return "true" if value else "false"
