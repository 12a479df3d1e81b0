"""Operations whose indices are values: take, dynamic slices, gather, scatter."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, integers
from kcache_compiler.frontends.graph.ops.elementwise import compare, convert
from kcache_compiler.frontends.graph.ops.gather_scatter import SCATTER_COMBINERS, gather, scatter
from kcache_compiler.frontends.graph.ops.shaping import expand_dims
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    ANY,
    INTEGERS,
    Type,
    Value,
    axis_of,
    require_static,
    same_dtype,
)


def _check_starts(x: Value, starts: Sequence[Value]) -> None:
    if len(starts) != len(x.dims):
        raise InvalidProgram(f"{len(starts)} starts for {x}: give one scalar for each of its axes")
    for start in starts:
        if start.dims:
            raise InvalidProgram(f"the start {start} is not a scalar")
    same_dtype(*starts)


def dynamic_slice(e: Emitter, x: Value, *starts: Value, sizes: tuple[int, ...]) -> Value:
    """Emit a slice of static size that starts at dynamic indices."""
    _check_starts(x, starts)
    if len(sizes) != len(x.dims):
        raise InvalidProgram(
            f"sizes has {len(sizes)} entries, but {x} has {len(x.dims)} axes: give one for each"
        )
    for axis, size in enumerate(sizes):
        dim = require_static(x, axis, "dynamic_slice needs its size")
        if not 0 <= size <= dim:
            raise InvalidProgram(f"sizes has {size} for axis {axis} of {x}")
    return e.emit("dynamic_slice", (x, *starts), Type(x.dtype, sizes), f"slice_sizes = {integers(sizes)}")


def dynamic_update_slice(e: Emitter, x: Value, update: Value, *starts: Value) -> Value:
    """Emit ``x`` with a part replaced by ``update``."""
    _check_starts(x, starts)
    same_dtype(x, update)
    if len(update.dims) != len(x.dims):
        raise InvalidProgram(f"the update {update} and {x} differ in rank")
    for axis, (dim, update_dim) in enumerate(zip(x.dims, update.dims, strict=True)):
        if dim != update_dim and not (
            isinstance(dim, int) and isinstance(update_dim, int) and update_dim < dim
        ):
            raise InvalidProgram(f"axis {axis} of the update {update} does not fit into {x}")
    return e.emit("dynamic_update_slice", (x, update, *starts), x.type)


def take(e: Emitter, x: Value, indices: Value, *, axis: int = 0) -> Value:
    """Select entries along one axis."""
    dim = axis_of(axis, len(x.dims))
    count = len(indices.dims)
    sizes = tuple(1 if a == dim else require_static(x, a, "take needs its size") for a in range(len(x.dims)))
    offsets = (*range(dim), *range(dim + count, len(x.dims) - 1 + count))
    return gather(
        e,
        x,
        indices,
        offset_dims=offsets,
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        index_vector_dim=count,
        slice_sizes=sizes,
    )


def take_along_axis(e: Emitter, x: Value, indices: Value, *, axis: int = -1) -> Value:
    """Select entries along one axis, by an index for each position of the other axes."""
    rank = len(x.dims)
    dim = axis_of(axis, rank)
    batch_axes = tuple(a for a in range(rank) if a != dim)
    if len(indices.dims) != rank or any(indices.dims[a] != x.dims[a] for a in batch_axes) or not rank:
        raise InvalidProgram(f"the indices {indices} differ from {x} along an axis other than {dim}")
    return gather(
        e,
        x,
        expand_dims(e, indices, axes=(rank,)),
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        index_vector_dim=rank,
        slice_sizes=(1,) * rank,
        operand_batching_dims=batch_axes,
        start_indices_batching_dims=batch_axes,
    )


def one_hot(e: Emitter, x: Value, *, depth: int, dtype: str = "f32") -> Value:
    """Emit a new last axis with a one at the index ``x``."""
    dims = (*x.dims, depth)
    positions = e.iota(x.dtype, dims, len(x.dims))
    indices = e.broadcast_in_dim(x, dims, range(len(x.dims)))
    return convert(e, compare(e, indices, positions, direction="eq"), dtype=dtype)


_BATCHING = "Batch axes of both operands, in ascending order."

INDEXING = Group(
    "Indexing by values",
    (
        Op(
            "take",
            "Entries of x along one axis; indices out of range are clamped.",
            (Operand("x", ANY), Operand("indices", INTEGERS)),
            take,
            "the shape of `x` with the axis replaced by those of `indices`; the other axes are static",
            "`stablehlo.gather`",
            (Attribute("axis", "int", "The axis.", 0),),
            composite=True,
        ),
        Op(
            "take_along_axis",
            "At each position the entry along one axis that the index selects.",
            (Operand("x", ANY), Operand("indices", INTEGERS)),
            take_along_axis,
            "the shape of `indices`, which is that of `x` except along the axis",
            "`stablehlo.gather` with batching axes",
            (Attribute("axis", "int", "The axis.", -1),),
            composite=True,
        ),
        Op(
            "one_hot",
            "1 at the index x of a new last axis, 0 elsewhere.",
            (Operand("x", INTEGERS),),
            one_hot,
            "the shape of `x` followed by an axis of size `depth`, in `dtype`",
            "`convert(compare(x, iota), dtype)`",
            (
                Attribute("depth", "int", "The size of the new axis."),
                Attribute("dtype", "dtype", "The dtype of the result.", "f32"),
            ),
            composite=True,
        ),
        Op(
            "dynamic_slice",
            "A slice of x of static size; starts are clamped so that it lies within x.",
            (Operand("x", ANY), Operand("starts", INTEGERS, variadic=True)),
            dynamic_slice,
            "`sizes`, in the dtype of `x`; one scalar start for each axis of `x`, all of one dtype",
            "`stablehlo.dynamic_slice`",
            (Attribute("sizes", "ints", "The size of the slice along each axis."),),
        ),
        Op(
            "dynamic_update_slice",
            "x with a slice replaced; starts are clamped so that it lies within x.",
            (Operand("x", ANY), Operand("update", ANY), Operand("starts", INTEGERS, variadic=True)),
            dynamic_update_slice,
            "the shape and dtype of `x`; `update` has its dtype and rank; one scalar start for each axis",
            "`stablehlo.dynamic_update_slice`",
        ),
        Op(
            "gather",
            "Slices of x at given indices, in the general form of StableHLO.",
            (Operand("x", ANY), Operand("indices", INTEGERS)),
            gather,
            "the axes of `indices` without the index vector, and those of a slice at `offset_dims`",
            "`stablehlo.gather`",
            (
                Attribute(
                    "offset_dims", "ints", "Axes of the result that are axes of a slice, in ascending order."
                ),
                Attribute(
                    "collapsed_slice_dims",
                    "ints",
                    "Axes of x that are removed from a slice, in ascending order.",
                ),
                Attribute("start_index_map", "ints", "The axis of x that each entry of an index refers to."),
                Attribute(
                    "index_vector_dim",
                    "int",
                    "The axis of the indices that holds an index; their rank if each index is a scalar.",
                ),
                Attribute("slice_sizes", "ints", "The size of a slice along each axis of x."),
                Attribute("operand_batching_dims", "ints", _BATCHING, ()),
                Attribute("start_indices_batching_dims", "ints", _BATCHING, ()),
                Attribute("indices_are_sorted", "bool", "Whether the caller guarantees it.", False),
            ),
        ),
        Op(
            "scatter",
            "x with slices combined into it at given indices, in the general form of StableHLO.",
            (Operand("x", ANY), Operand("indices", INTEGERS), Operand("updates", ANY)),
            scatter,
            "the shape and dtype of `x`; updates out of range are dropped",
            "`stablehlo.scatter`",
            (
                Attribute(
                    "kind",
                    "string",
                    "How an update is combined with the element.",
                    choices=tuple(SCATTER_COMBINERS),
                ),
                Attribute(
                    "update_window_dims",
                    "ints",
                    "Axes of the updates that are axes of a slice, in ascending order.",
                ),
                Attribute(
                    "inserted_window_dims",
                    "ints",
                    "Axes of x that a slice does not have, in ascending order.",
                ),
                Attribute(
                    "scatter_dims_to_operand_dims",
                    "ints",
                    "The axis of x that each entry of an index refers to.",
                ),
                Attribute(
                    "index_vector_dim",
                    "int",
                    "The axis of the indices that holds an index; their rank if each index is a scalar.",
                ),
                Attribute("input_batching_dims", "ints", _BATCHING, ()),
                Attribute("scatter_indices_batching_dims", "ints", _BATCHING, ()),
                Attribute("indices_are_sorted", "bool", "Whether the caller guarantees it.", False),
                Attribute("unique_indices", "bool", "Whether the caller guarantees it.", False),
            ),
        ),
    ),
)
