"""Operations that move elements without computing: reshapes, broadcasts, transposes, concatenations."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, integers
from kcache_compiler.frontends.graph.ops.creation import sizes_of
from kcache_compiler.frontends.graph.program import ShapeValue
from kcache_compiler.frontends.graph.size_expression import Size, plus, product, quotient, times
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import (
    ANY,
    Type,
    Value,
    axes_of,
    axis_of,
    broadcast_dims,
    same_dtype,
    shape_text,
)


def broadcast_to(e: Emitter, x: Value, *, shape: ShapeValue) -> Value:
    """Broadcast to a shape by NumPy's rule."""
    dims = sizes_of(e, shape.dims)
    target = Value("", Type(x.dtype, dims))
    if len(dims) < len(x.dims) or broadcast_dims((x, target)) != dims:
        raise InvalidProgram(f"{x} does not broadcast to {shape_text(dims)}")
    return e.broadcast_to(x, dims)


def broadcast_in_dim(e: Emitter, x: Value, *, shape: ShapeValue, axes: tuple[int, ...]) -> Value:
    """Broadcast; axis ``i`` of ``x`` becomes axis ``axes[i]`` of the result."""
    dims = sizes_of(e, shape.dims)
    if len(axes) != len(x.dims):
        raise InvalidProgram(
            f"axes has {len(axes)} entries, but {x} has {len(x.dims)} axes: give one for each"
        )
    normalized = axes_of(axes, len(dims))
    for operand_axis, axis in enumerate(normalized):
        if x.dims[operand_axis] not in (1, dims[axis]):
            raise InvalidProgram(
                f"axis {operand_axis} of {x} cannot be axis {axis} of {shape_text(dims)}: it must have "
                f"this size, or 1"
            )
    return e.broadcast_in_dim(x, dims, normalized)


def reshape(e: Emitter, x: Value, *, shape: ShapeValue) -> Value:
    """Reshape in row-major order; a size of -1 is derived from the others."""
    total = product(x.dims)
    if sum(dim == -1 for dim in shape.dims) > 1:
        raise InvalidProgram(f"the shape of {x} has several sizes of -1: only one can be derived")
    sizes = sizes_of(e, [1 if dim == -1 else dim for dim in shape.dims])
    known_elements = product(sizes)
    derived = quotient(total, known_elements) if -1 in shape.dims and known_elements != 0 else None
    if -1 in shape.dims and derived is None:
        text = ",".join("-1" if dim == -1 else str(dim) for dim in shape.dims)
        raise InvalidProgram(f"no size fits the -1 of [{text}] for the {total} elements of {x}")
    dims = tuple(
        derived if dim == -1 and derived is not None else size
        for dim, size in zip(shape.dims, sizes, strict=True)
    )
    if product(dims) != total:
        raise InvalidProgram(f"{x} has {total} elements and {shape_text(dims)} has {product(dims)}")
    return e.reshape(x, dims)


def expand_dims(e: Emitter, x: Value, *, axes: tuple[int, ...]) -> Value:
    """Insert axes of size 1 at the positions ``axes`` of the result."""
    rank = len(x.dims) + len(axes)
    new_axes = set(axes_of(axes, rank))
    dims = iter(x.dims)
    return e.reshape(x, tuple(1 if axis in new_axes else next(dims) for axis in range(rank)))


def squeeze(e: Emitter, x: Value, *, axes: tuple[int, ...] | None = None) -> Value:
    """Remove the given axes of size 1, by default all of them."""
    if axes is None:
        axes = tuple(axis for axis, size in enumerate(x.dims) if size == 1)
    removed = axes_of(axes, len(x.dims))
    for axis in removed:
        if x.dims[axis] != 1:
            raise InvalidProgram(
                f"axis {axis} of {x} has the size {x.dims[axis]}: only axes of size 1 can be removed"
            )
    return e.reshape(x, tuple(size for axis, size in enumerate(x.dims) if axis not in removed))


def transpose(e: Emitter, x: Value, *, permutation: tuple[int, ...] | None = None) -> Value:
    """Permute axes, by default in reverse order."""
    order = tuple(reversed(range(len(x.dims)))) if permutation is None else permutation
    if sorted(axes_of(order, len(x.dims), "permutation")) != list(range(len(x.dims))):
        raise InvalidProgram(f"permutation {list(order)} does not contain every axis of {x}")
    return permute(e, x, axes_of(order, len(x.dims)))


def permute(e: Emitter, x: Value, order: Sequence[int]) -> Value:
    """Permute axes: axis ``i`` of the result is ``order[i]`` of ``x``. The identity emits nothing."""
    if list(order) == list(range(len(x.dims))):
        return x
    type = Type(x.dtype, tuple(x.dims[axis] for axis in order))
    return e.emit("transpose", (x,), type, f"permutation = {integers(order)}")


def reverse(e: Emitter, x: Value, *, axes: tuple[int, ...]) -> Value:
    """Reverse the order of elements along some axes."""
    return e.emit("reverse", (x,), x.type, f"dimensions = {integers(axes_of(axes, len(x.dims)))}")


def concatenate(e: Emitter, *xs: Value, axis: int = 0) -> Value:
    """Concatenate along an axis."""
    dtype, first = same_dtype(*xs), xs[0]
    dimension = axis_of(axis, len(first.dims))
    total: Size = 0
    for value in xs:
        if len(value.dims) != len(first.dims) or any(
            size != first_size
            for index, (size, first_size) in enumerate(zip(value.dims, first.dims, strict=True))
            if index != dimension
        ):
            raise InvalidProgram(f"{first} and {value} differ along an axis other than {dimension}")
        total = plus(total, value.dims[dimension])
    type = Type(dtype, (*first.dims[:dimension], total, *first.dims[dimension + 1 :]))
    return e.emit("concatenate", xs, type, f"dimension = {dimension} : i64")


def stack(e: Emitter, *xs: Value, axis: int = 0) -> Value:
    """Concatenate along a new axis."""
    dimension = axis_of(axis, len(xs[0].dims) + 1)
    return concatenate(e, *(expand_dims(e, value, axes=(dimension,)) for value in xs), axis=dimension)


def tile(e: Emitter, x: Value, *, repeats: tuple[int, ...]) -> Value:
    """Repeat the whole value along each axis."""
    if len(repeats) != len(x.dims):
        raise InvalidProgram(
            f"repeats has {len(repeats)} entries, but {x} has {len(x.dims)} axes: give one for each"
        )
    if any(count < 0 for count in repeats):
        raise InvalidProgram(f"repeats {list(repeats)} contains a negative number")
    dims: list[Size] = []
    for size, count in zip(x.dims, repeats, strict=True):
        dims += [count, size]
    wide = e.broadcast_in_dim(x, tuple(dims), range(1, 2 * len(x.dims), 2))
    return e.reshape(wide, tuple(times(size, count) for size, count in zip(x.dims, repeats, strict=True)))


_X = Operand("x", ANY)
_SHAPE = "shape"

SHAPING = Group(
    "Shapes",
    (
        Op(
            "broadcast_to",
            "x broadcast to a shape by NumPy's rule.",
            (_X,),
            broadcast_to,
            "`shape`, in the dtype of `x`; axes are aligned at the end, and those of size 1 are repeated",
            "`stablehlo.broadcast_in_dim`",
            (Attribute("shape", _SHAPE, "The shape of the result."),),
        ),
        Op(
            "broadcast_in_dim",
            "x broadcast along axes that it does not have.",
            (_X,),
            broadcast_in_dim,
            "`shape`, in the dtype of `x`; axis i of `x` has the size of axis `axes[i]` of the result, or 1",
            "`stablehlo.broadcast_in_dim`",
            (
                Attribute("shape", _SHAPE, "The shape of the result."),
                Attribute("axes", "ints", "The axis of the result for each axis of x, all distinct."),
            ),
        ),
        Op(
            "reshape",
            "The same elements in row-major order in another shape.",
            (_X,),
            reshape,
            "`shape`, in the dtype of `x`; the number of elements is unchanged",
            "`stablehlo.reshape`",
            (Attribute("shape", _SHAPE, "The shape of the result; one size may be -1, which is derived."),),
        ),
        Op(
            "expand_dims",
            "x with new axes of size 1.",
            (_X,),
            expand_dims,
            "the shape of `x` with axes of size 1 at the positions `axes`",
            "`stablehlo.reshape`",
            (Attribute("axes", "ints", "Positions of the new axes in the result."),),
        ),
        Op(
            "squeeze",
            "x without axes of size 1.",
            (_X,),
            squeeze,
            "the shape of `x` without `axes`",
            "`stablehlo.reshape`",
            (Attribute("axes", "ints", "The axes to remove. Default: all of size 1.", None),),
        ),
        Op(
            "transpose",
            "x with permuted axes.",
            (_X,),
            transpose,
            "axis i of the result is axis `permutation[i]` of `x`",
            "`stablehlo.transpose`",
            (Attribute("permutation", "ints", "A permutation of the axes. Default: reverse order.", None),),
        ),
        Op(
            "reverse",
            "x in reverse order along some axes.",
            (_X,),
            reverse,
            "the shape and dtype of `x`",
            "`stablehlo.reverse`",
            (Attribute("axes", "ints", "The axes, all distinct."),),
        ),
        Op(
            "concatenate",
            "Values concatenated along an axis.",
            (Operand("xs", ANY, variadic=True),),
            concatenate,
            "one dtype; equal sizes along the other axes; the sizes along `axis` add up",
            "`stablehlo.concatenate`",
            (Attribute("axis", "int", "The axis.", 0),),
        ),
        Op(
            "stack",
            "Values concatenated along a new axis.",
            (Operand("xs", ANY, variadic=True),),
            stack,
            "the common dtype and shape, with a new axis whose size is the number of operands",
            "`stablehlo.reshape` each, then `stablehlo.concatenate`",
            (Attribute("axis", "int", "Position of the new axis in the result.", 0),),
            composite=True,
        ),
        Op(
            "tile",
            "x repeated along each axis.",
            (_X,),
            tile,
            "each size times its entry in `repeats`",
            "`stablehlo.broadcast_in_dim`, then `stablehlo.reshape`",
            (Attribute("repeats", "ints", "Number of repetitions along each axis, at least 0."),),
            composite=True,
        ),
    ),
)
