"""Operations that move elements without computing."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, integers
from kcache_compiler.frontends.graph.extent import Size, plus, product, quotient, times
from kcache_compiler.frontends.graph.ops.creation import sizes_of
from kcache_compiler.frontends.graph.program import ShapeValue
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
    """The NumPy rule."""
    dims = sizes_of(e, shape.dims)
    target = Value("", Type(x.dtype, dims))
    if len(dims) < len(x.dims) or broadcast_dims((x, target)) != dims:
        raise InvalidProgram(f"{x} does not broadcast to {shape_text(dims)}")
    return e.broadcast_to(x, dims)


def broadcast_in_dim(e: Emitter, x: Value, *, shape: ShapeValue, axes: tuple[int, ...]) -> Value:
    """Axis ``i`` of ``x`` becomes ``axes[i]``."""
    dims = sizes_of(e, shape.dims)
    if len(axes) != len(x.dims):
        raise InvalidProgram(f"axes has {len(axes)} entries, and {x} has {len(x.dims)} axes: one for each")
    found = axes_of(axes, len(dims))
    for own, axis in enumerate(found):
        if x.dims[own] not in (1, dims[axis]):
            raise InvalidProgram(
                f"axis {own} of {x} cannot be axis {axis} of {shape_text(dims)}: it must have its size, or 1"
            )
    return e.broadcast_in_dim(x, dims, found)


def reshape(e: Emitter, x: Value, *, shape: ShapeValue) -> Value:
    """The same elements, row major; one -1 is what is left."""
    total = product(x.dims)
    if sum(dim == -1 for dim in shape.dims) > 1:
        raise InvalidProgram(f"the shape of {x} has several sizes of -1: one at most follows from the others")
    known = sizes_of(e, [1 if dim == -1 else dim for dim in shape.dims])
    given = product(known)
    rest = quotient(total, given) if -1 in shape.dims and given != 0 else None
    if -1 in shape.dims and rest is None:
        text = ",".join("-1" if dim == -1 else str(dim) for dim in shape.dims)
        raise InvalidProgram(f"no size fits the -1 of [{text}] for the {total} elements of {x}")
    dims = tuple(
        rest if dim == -1 and rest is not None else own for dim, own in zip(shape.dims, known, strict=True)
    )
    if product(dims) != total:
        raise InvalidProgram(f"{x} has {total} elements and {shape_text(dims)} has {product(dims)}")
    return e.reshape(x, dims)


def expand_dims(e: Emitter, x: Value, *, axes: tuple[int, ...]) -> Value:
    """New axes of size 1, counted in the result."""
    rank = len(x.dims) + len(axes)
    found = set(axes_of(axes, rank))
    rest = iter(x.dims)
    return e.reshape(x, tuple(1 if axis in found else next(rest) for axis in range(rank)))


def squeeze(e: Emitter, x: Value, *, axes: tuple[int, ...] | None = None) -> Value:
    """Without axes of size 1: all of them, or those that are named."""
    if axes is None:
        axes = tuple(axis for axis, own in enumerate(x.dims) if own == 1)
    gone = axes_of(axes, len(x.dims))
    for axis in gone:
        if x.dims[axis] != 1:
            raise InvalidProgram(f"axis {axis} of {x} is {x.dims[axis]}: only an axis of size 1 can go")
    return e.reshape(x, tuple(own for axis, own in enumerate(x.dims) if axis not in gone))


def transpose(e: Emitter, x: Value, *, permutation: tuple[int, ...] | None = None) -> Value:
    """Axes in another order; reversed where none is given."""
    order = tuple(reversed(range(len(x.dims)))) if permutation is None else permutation
    if sorted(axes_of(order, len(x.dims), "permutation")) != list(range(len(x.dims))):
        raise InvalidProgram(f"permutation {list(order)} does not name every axis of {x}")
    return permute(e, x, axes_of(order, len(x.dims)))


def permute(e: Emitter, x: Value, order: Sequence[int]) -> Value:
    """Axis ``i`` of the result is ``order[i]`` of ``x``; nothing where that is every axis in its place."""
    if list(order) == list(range(len(x.dims))):
        return x
    type = Type(x.dtype, tuple(x.dims[axis] for axis in order))
    return e.emit("transpose", (x,), type, f"permutation = {integers(order)}")


def reverse(e: Emitter, x: Value, *, axes: tuple[int, ...]) -> Value:
    """Backwards along some axes."""
    return e.emit("reverse", (x,), x.type, f"dimensions = {integers(axes_of(axes, len(x.dims)))}")


def concatenate(e: Emitter, *xs: Value, axis: int = 0) -> Value:
    """One after the other along an axis."""
    dtype, first = same_dtype(*xs), xs[0]
    at = axis_of(axis, len(first.dims))
    total: Size = 0
    for value in xs:
        if len(value.dims) != len(first.dims) or any(
            own != other
            for own_axis, (own, other) in enumerate(zip(value.dims, first.dims, strict=True))
            if own_axis != at
        ):
            raise InvalidProgram(f"{first} and {value} differ along an axis other than {at}")
        total = plus(total, value.dims[at])
    type = Type(dtype, (*first.dims[:at], total, *first.dims[at + 1 :]))
    return e.emit("concatenate", xs, type, f"dimension = {at} : i64")


def stack(e: Emitter, *xs: Value, axis: int = 0) -> Value:
    """One after the other along a new axis."""
    at = axis_of(axis, len(xs[0].dims) + 1)
    return concatenate(e, *(expand_dims(e, value, axes=(at,)) for value in xs), axis=at)


def tile(e: Emitter, x: Value, *, repeats: tuple[int, ...]) -> Value:
    """The whole, repeated along each axis."""
    if len(repeats) != len(x.dims):
        raise InvalidProgram(
            f"repeats has {len(repeats)} entries, and {x} has {len(x.dims)} axes: one for each"
        )
    if any(count < 0 for count in repeats):
        raise InvalidProgram(f"repeats {list(repeats)} is negative somewhere")
    dims: list[Size] = []
    for own, count in zip(x.dims, repeats, strict=True):
        dims += [count, own]
    wide = e.broadcast_in_dim(x, tuple(dims), range(1, 2 * len(x.dims), 2))
    return e.reshape(wide, tuple(times(own, count) for own, count in zip(x.dims, repeats, strict=True)))


_X = Operand("x", ANY)
_SHAPE = "shape"

SHAPES = Group(
    "Shapes",
    (
        Op(
            "broadcast_to",
            "x repeated to a shape by the rule of NumPy.",
            (_X,),
            broadcast_to,
            "`shape`, in the dtype of `x`; axes are aligned at the end, and those of size 1 are repeated",
            "`stablehlo.broadcast_in_dim`",
            (Attribute("shape", _SHAPE, "The shape of the result."),),
        ),
        Op(
            "broadcast_in_dim",
            "x repeated along axes that it lacks.",
            (_X,),
            broadcast_in_dim,
            "`shape`, in the dtype of `x`; axis i of `x` has the size of axis `axes[i]` of the result, or 1",
            "`stablehlo.broadcast_in_dim`",
            (
                Attribute("shape", _SHAPE, "The shape of the result."),
                Attribute("axes", "ints", "For each axis of x its place in the result; none twice."),
            ),
        ),
        Op(
            "reshape",
            "The same elements in row-major order in another shape.",
            (_X,),
            reshape,
            "`shape`, in the dtype of `x`; as many elements",
            "`stablehlo.reshape`",
            (Attribute("shape", _SHAPE, "The shape of the result; one size may be -1, and follows."),),
        ),
        Op(
            "expand_dims",
            "New axes of size 1.",
            (_X,),
            expand_dims,
            "the shape of `x` with axes of size 1 where `axes` say",
            "`stablehlo.reshape`",
            (Attribute("axes", "ints", "Places of the new axes in the result."),),
        ),
        Op(
            "squeeze",
            "Without axes of size 1.",
            (_X,),
            squeeze,
            "the shape of `x` without `axes`",
            "`stablehlo.reshape`",
            (Attribute("axes", "ints", "The axes to take away. Default: all of size 1.", None),),
        ),
        Op(
            "transpose",
            "Axes in another order.",
            (_X,),
            transpose,
            "axis i of the result is axis `permutation[i]` of `x`",
            "`stablehlo.transpose`",
            (Attribute("permutation", "ints", "Every axis once. Default: the reversed order.", None),),
        ),
        Op(
            "reverse",
            "Backwards along some axes.",
            (_X,),
            reverse,
            "the shape and dtype of `x`",
            "`stablehlo.reverse`",
            (Attribute("axes", "ints", "The axes, none twice."),),
        ),
        Op(
            "concatenate",
            "Values one after the other along an axis.",
            (Operand("xs", ANY, many=True),),
            concatenate,
            "one dtype; equal sizes along the other axes; the sizes along `axis` add up",
            "`stablehlo.concatenate`",
            (Attribute("axis", "int", "The axis.", 0),),
        ),
        Op(
            "stack",
            "Values one after the other along a new axis.",
            (Operand("xs", ANY, many=True),),
            stack,
            "one dtype and shape, and a new axis with as many elements as there are operands",
            "`stablehlo.reshape` each, then `stablehlo.concatenate`",
            (Attribute("axis", "int", "Place of the new axis in the result.", 0),),
            composite=True,
        ),
        Op(
            "tile",
            "The whole of x, repeated along each axis.",
            (_X,),
            tile,
            "each size times its entry in `repeats`",
            "`stablehlo.broadcast_in_dim`, then `stablehlo.reshape`",
            (Attribute("repeats", "ints", "One for each axis, from 0."),),
            composite=True,
        ),
    ),
)
