"""Operations whose indices are values."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, combiner, integers, scalar_type
from kcache_compiler.frontends.graph.extent import Size
from kcache_compiler.frontends.graph.ops.elementwise import compare, convert
from kcache_compiler.frontends.graph.ops.shaping import expand_dims
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    ANY,
    INTEGERS,
    Type,
    Value,
    axes_of,
    axis_of,
    require_static,
    same_dtype,
)

#: How scatter combines what is there with an update: the StableHLO operation, or none.
UPDATES = {
    "replace": "",
    "add": "add",
    "multiply": "multiply",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
}


def _starts(x: Value, starts: Sequence[Value]) -> None:
    if len(starts) != len(x.dims):
        raise InvalidProgram(f"{len(starts)} starts for {x}: give one scalar for each of its axes")
    for start in starts:
        if start.dims:
            raise InvalidProgram(f"the start {start} is no scalar")
    same_dtype(*starts)


def dynamic_slice(e: Emitter, x: Value, *starts: Value, sizes: tuple[int, ...]) -> Value:
    """A part of fixed size, from where values say."""
    _starts(x, starts)
    if len(sizes) != len(x.dims):
        raise InvalidProgram(f"sizes has {len(sizes)} entries, and {x} has {len(x.dims)} axes: one for each")
    for axis, size in enumerate(sizes):
        own = require_static(x, axis, "dynamic_slice has no form for it")
        if not 0 <= size <= own:
            raise InvalidProgram(f"sizes has {size} for axis {axis} of {x}")
    return e.emit("dynamic_slice", (x, *starts), Type(x.dtype, sizes), f"slice_sizes = {integers(sizes)}")


def dynamic_update_slice(e: Emitter, x: Value, update: Value, *starts: Value) -> Value:
    """``x`` with a part replaced."""
    _starts(x, starts)
    same_dtype(x, update)
    if len(update.dims) != len(x.dims):
        raise InvalidProgram(f"the update {update} has another rank than {x}")
    for axis, (own, part) in enumerate(zip(x.dims, update.dims, strict=True)):
        if own != part and not (isinstance(own, int) and isinstance(part, int) and part < own):
            raise InvalidProgram(f"axis {axis} of the update {update} does not fit into {x}")
    return e.emit("dynamic_update_slice", (x, update, *starts), x.type)


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
    """The general form."""
    rank = len(x.dims)
    _ascending(rank, collapsed_slice_dims=collapsed_slice_dims, operand_batching_dims=operand_batching_dims)
    _batched(x, indices, operand_batching_dims, start_indices_batching_dims, index_vector_dim)
    if len(slice_sizes) != rank:
        raise InvalidProgram(f"slice_sizes has {len(slice_sizes)} entries, and {x} has {rank} axes")
    for axis, (own, part) in enumerate(zip(x.dims, slice_sizes, strict=True)):
        if part != 1:
            own = require_static(x, axis, "gather takes slices of size 1 along it")
        if part < 0 or (isinstance(own, int) and part > own):
            raise InvalidProgram(f"slice_sizes has {part} for axis {axis} of {x}")
    gone = {*collapsed_slice_dims, *operand_batching_dims}
    if len(gone) != len(collapsed_slice_dims) + len(operand_batching_dims):
        raise InvalidProgram("collapsed_slice_dims and operand_batching_dims name an axis twice")
    if any(slice_sizes[axis] > 1 for axis in gone):
        raise InvalidProgram("slice_sizes is 1 at most along collapsed_slice_dims and operand_batching_dims")
    offsets: list[Size] = [part for axis, part in enumerate(slice_sizes) if axis not in gone]
    _index_map("start_index_map", x, indices, start_index_map, index_vector_dim)
    batch = _without(indices.dims, index_vector_dim)
    dims = _interleaved("offset_dims", offset_dims, offsets, batch)
    numbers = _numbers(
        offset_dims=offset_dims,
        collapsed_slice_dims=collapsed_slice_dims,
        operand_batching_dims=operand_batching_dims,
        start_indices_batching_dims=start_indices_batching_dims,
        start_index_map=start_index_map,
    )
    attributes = (
        f"dimension_numbers = #stablehlo.gather<{numbers}index_vector_dim = {index_vector_dim}>, "
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
    """The general form, with a named combiner."""
    same_dtype(x, updates)
    rank = len(x.dims)
    _ascending(rank, inserted_window_dims=inserted_window_dims, input_batching_dims=input_batching_dims)
    _batched(x, indices, input_batching_dims, scatter_indices_batching_dims, index_vector_dim)
    _index_map("scatter_dims_to_operand_dims", x, indices, scatter_dims_to_operand_dims, index_vector_dim)
    gone = {*inserted_window_dims, *input_batching_dims}
    window = [axis for axis in range(rank) if axis not in gone]
    batch = _without(indices.dims, index_vector_dim)
    places = axes_of(update_window_dims, len(updates.dims), "update_window_dims")
    _ascending(len(updates.dims), update_window_dims=update_window_dims)
    rest = [size for axis, size in enumerate(updates.dims) if axis not in places]
    if len(places) != len(window) or rest != batch:
        raise InvalidProgram(
            f"the updates {updates} do not fit: {len(window)} window axes, and beside them the sizes "
            f"{[str(size) for size in batch]} of the indices {indices}"
        )
    for place, axis in zip(places, window, strict=True):
        part, own = updates.dims[place], x.dims[axis]
        if part != own and not (isinstance(part, int) and isinstance(own, int) and part <= own):
            raise InvalidProgram(f"axis {place} of the updates {updates} does not fit axis {axis} of {x}")
    numbers = _numbers(
        update_window_dims=update_window_dims,
        inserted_window_dims=inserted_window_dims,
        input_batching_dims=input_batching_dims,
        scatter_indices_batching_dims=scatter_indices_batching_dims,
        scatter_dims_to_operand_dims=scatter_dims_to_operand_dims,
    )
    attributes = (
        f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}index_vector_dim = {index_vector_dim}>, "
        f"indices_are_sorted = {_bool(indices_are_sorted)}, unique_indices = {_bool(unique_indices)}"
    )
    region = _replace(x.dtype) if kind == "replace" else combiner(UPDATES[kind], x.dtype)
    return e.emit("scatter", (x, indices, updates), x.type, attributes, region)


def take(e: Emitter, x: Value, indices: Value, *, axis: int = 0) -> Value:
    """Entries of one axis."""
    at = axis_of(axis, len(x.dims))
    count = len(indices.dims)
    sizes = tuple(1 if a == at else require_static(x, a, "take needs its size") for a in range(len(x.dims)))
    offsets = (*range(at), *range(at + count, len(x.dims) - 1 + count))
    return gather(
        e,
        x,
        indices,
        offset_dims=offsets,
        collapsed_slice_dims=(at,),
        start_index_map=(at,),
        index_vector_dim=count,
        slice_sizes=sizes,
    )


def take_along_axis(e: Emitter, x: Value, indices: Value, *, axis: int = -1) -> Value:
    """Entries of one axis, other ones at each place of the others."""
    rank = len(x.dims)
    at = axis_of(axis, rank)
    others = tuple(a for a in range(rank) if a != at)
    if len(indices.dims) != rank or any(indices.dims[a] != x.dims[a] for a in others) or not rank:
        raise InvalidProgram(f"the indices {indices} differ from {x} along an axis other than {at}")
    return gather(
        e,
        x,
        expand_dims(e, indices, axes=(rank,)),
        offset_dims=(),
        collapsed_slice_dims=(at,),
        start_index_map=(at,),
        index_vector_dim=rank,
        slice_sizes=(1,) * rank,
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )


def one_hot(e: Emitter, x: Value, *, depth: int, dtype: str = "f32") -> Value:
    """A new last axis with a one at the place that ``x`` says."""
    dims = (*x.dims, depth)
    places = e.iota(x.dtype, dims, len(x.dims))
    wanted = e.broadcast_in_dim(x, dims, range(len(x.dims)))
    return convert(e, compare(e, wanted, places, direction="eq"), dtype=dtype)


def _ascending(rank: int, **lists: tuple[int, ...]) -> None:
    for name, axes in lists.items():
        if list(axes) != sorted(set(axes)) or any(not 0 <= axis < rank for axis in axes):
            raise InvalidProgram(
                f"{name} is {list(axes)}: it lists axes from 0 to {rank - 1} in rising order"
            )


def _batched(
    x: Value, indices: Value, own: tuple[int, ...], theirs: tuple[int, ...], index_vector_dim: int
) -> None:
    if not 0 <= index_vector_dim <= len(indices.dims):
        raise InvalidProgram(
            f"index_vector_dim is {index_vector_dim}, and the indices {indices} have rank {len(indices.dims)}"
        )
    found = axes_of(theirs, len(indices.dims), "batching axes of the indices")
    sizes = [indices.dims[axis] for axis in found]
    if sizes != [x.dims[axis] for axis in own] or index_vector_dim in found:
        raise InvalidProgram(f"the batching axes of {x} and of the indices {indices} differ")


def _index_map(name: str, x: Value, indices: Value, axes: tuple[int, ...], index_vector_dim: int) -> None:
    axes_of(axes, len(x.dims), name)
    have = indices.dims[index_vector_dim] if index_vector_dim < len(indices.dims) else 1
    if have != len(axes):
        raise InvalidProgram(f"{name} has {len(axes)} entries, and an index of {indices} has {have}")


def _without(dims: Sequence[Size], axis: int) -> list[Size]:
    return [size for at, size in enumerate(dims) if at != axis]


def _interleaved(
    name: str, places: tuple[int, ...], inside: Sequence[Size], batch: Sequence[Size]
) -> tuple[Size, ...]:
    rank = len(inside) + len(batch)
    if len(places) != len(inside):
        raise InvalidProgram(f"{name} has {len(places)} entries, and a slice has {len(inside)} axes left")
    _ascending(rank, **{name: places})
    offsets, others = iter(inside), iter(batch)
    return tuple(next(offsets) if axis in places else next(others) for axis in range(rank))


def _numbers(**lists: tuple[int, ...]) -> str:
    return "".join(f"{name} = {list(axes)}, " for name, axes in lists.items() if axes)


def _replace(dtype: str) -> str:
    scalar = scalar_type(dtype)
    return f'^bb0(%l: {scalar}, %r: {scalar}):\n  "stablehlo.return"(%r) : ({scalar}) -> ()'


def _bool(value: bool) -> str:
    return "true" if value else "false"


_BATCHING = "Axes that go along with each other, rising."

INDEXING = Group(
    "Indexing by values",
    (
        Op(
            "take",
            "Entries of x along one axis; an index out of range is moved to the nearest.",
            (Operand("x", ANY), Operand("indices", INTEGERS)),
            take,
            "the shape of `x` with the axis replaced by those of `indices`; the other axes are fixed",
            "`stablehlo.gather`",
            (Attribute("axis", "int", "The axis.", 0),),
            composite=True,
        ),
        Op(
            "take_along_axis",
            "At each place the entry along one axis that the index there names.",
            (Operand("x", ANY), Operand("indices", INTEGERS)),
            take_along_axis,
            "the shape of `indices`, which is that of `x` but for the axis",
            "`stablehlo.gather` with batching axes",
            (Attribute("axis", "int", "The axis.", -1),),
            composite=True,
        ),
        Op(
            "one_hot",
            "1 where a new last axis counts to x, 0 elsewhere.",
            (Operand("x", INTEGERS),),
            one_hot,
            "the shape of `x` and an axis of size `depth`, in `dtype`",
            "`convert(compare(x, iota), dtype)`",
            (
                Attribute("depth", "int", "The size of the new axis."),
                Attribute("dtype", "dtype", "The dtype of the result.", "f32"),
            ),
            composite=True,
        ),
        Op(
            "dynamic_slice",
            "A part of x of fixed size; starts are moved so that it lies within x.",
            (Operand("x", ANY), Operand("starts", INTEGERS, many=True)),
            dynamic_slice,
            "`sizes`, in the dtype of `x`; one scalar start for each axis of `x`, all of one dtype",
            "`stablehlo.dynamic_slice`",
            (Attribute("sizes", "ints", "The size of the part along each axis."),),
        ),
        Op(
            "dynamic_update_slice",
            "x with a part replaced; starts are moved so that it lies within x.",
            (Operand("x", ANY), Operand("update", ANY), Operand("starts", INTEGERS, many=True)),
            dynamic_update_slice,
            "the shape and dtype of `x`, whose dtype and rank `update` has; one scalar start for each axis",
            "`stablehlo.dynamic_update_slice`",
        ),
        Op(
            "gather",
            "Slices of x from where indices say, in the general form of StableHLO.",
            (Operand("x", ANY), Operand("indices", INTEGERS)),
            gather,
            "the axes of `indices` but for the index vector, and those of a slice at `offset_dims`",
            "`stablehlo.gather`",
            (
                Attribute("offset_dims", "ints", "Axes of the result that are axes of a slice, rising."),
                Attribute("collapsed_slice_dims", "ints", "Axes of x that a slice loses, rising."),
                Attribute(
                    "start_index_map", "ints", "For each entry of an index the axis of x that it counts."
                ),
                Attribute(
                    "index_vector_dim",
                    "int",
                    "The axis of the indices that holds an index; their rank: each index is a scalar.",
                ),
                Attribute("slice_sizes", "ints", "The size of a slice along each axis of x."),
                Attribute("operand_batching_dims", "ints", _BATCHING, ()),
                Attribute("start_indices_batching_dims", "ints", _BATCHING, ()),
                Attribute("indices_are_sorted", "bool", "A promise.", False),
            ),
        ),
        Op(
            "scatter",
            "x with slices combined into it where indices say, in the general form of StableHLO.",
            (Operand("x", ANY), Operand("indices", INTEGERS), Operand("updates", ANY)),
            scatter,
            "the shape and dtype of `x`; updates out of range are dropped",
            "`stablehlo.scatter`",
            (
                Attribute("kind", "string", "How an update is combined.", choices=tuple(UPDATES)),
                Attribute(
                    "update_window_dims", "ints", "Axes of the updates that are axes of a slice, rising."
                ),
                Attribute("inserted_window_dims", "ints", "Axes of x that a slice lacks, rising."),
                Attribute(
                    "scatter_dims_to_operand_dims",
                    "ints",
                    "For each entry of an index the axis of x that it counts.",
                ),
                Attribute(
                    "index_vector_dim",
                    "int",
                    "The axis of the indices that holds an index; their rank: each index is a scalar.",
                ),
                Attribute("input_batching_dims", "ints", _BATCHING, ()),
                Attribute("scatter_indices_batching_dims", "ints", _BATCHING, ()),
                Attribute("indices_are_sorted", "bool", "A promise.", False),
                Attribute("unique_indices", "bool", "A promise.", False),
            ),
        ),
    ),
)
