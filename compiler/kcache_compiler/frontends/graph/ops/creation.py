"""Operations that make values from nothing, and the sizes of their shapes."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, Number
from kcache_compiler.frontends.graph.extent import Size, symbol
from kcache_compiler.frontends.graph.ops.elementwise import convert
from kcache_compiler.frontends.graph.program import Dim, GraphTensor, ShapeValue
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import ANY, NUMBERS, Type, Value, axis_of, shape_text
from kcache_compiler.types import DTYPE_BYTES


def constant(e: Emitter, *, value: GraphTensor) -> Value:
    """A tensor by value. Raises ``InvalidProgram`` for contents of another length."""
    if any(size < 0 for size in value.dims):
        raise InvalidProgram(f"the constant has the shape {shape_text(value.dims)}: sizes are from 0")
    type = Type(value.dtype, value.dims)
    e.check(type)
    each, count = DTYPE_BYTES[value.dtype], 1
    for size in value.dims:
        count *= size
    if len(value.content) not in (each * count, each if count else 0):
        raise InvalidProgram(
            f"the content of a constant {type} has {len(value.content)} bytes: it takes {each * count}, or "
            f"{each} for one value that all its elements have"
        )
    if value.dtype == "i1" and value.content.translate(None, b"\0\1"):
        raise InvalidProgram(f"the content of a constant {type} holds bytes other than 0 and 1")
    return e.dense(type, value.content)


def full(e: Emitter, *, value: Number, dtype: str, shape: ShapeValue) -> Value:
    """One number everywhere."""
    return e.full(e.scalar(dtype, value), sizes_of(e, shape.dims))


def scalar_like(e: Emitter, x: Value, *, value: Number) -> Value:
    """A number of rank 0 in the dtype of ``x``."""
    return e.scalar(x.dtype, value)


def iota(e: Emitter, *, dtype: str, shape: ShapeValue, axis: int = 0) -> Value:
    """Indices along an axis."""
    dims = sizes_of(e, shape.dims)
    return e.iota(dtype, dims, axis_of(axis, len(dims)))


def size(e: Emitter, x: Value, *, axis: int, dtype: str = "i32") -> Value:
    """The size of an axis as a number."""
    found = x.dims[axis_of(axis, len(x.dims))]
    if isinstance(found, int):
        return e.scalar(dtype, found)
    return convert(e, e.size(found), dtype=dtype)


def sizes_of(e: Emitter, dims: Sequence[Dim]) -> tuple[Size, ...]:
    """The sizes of a shape attribute. Symbols must be those of an input."""
    result: list[Size] = []
    for dim in dims:
        if dim is None:
            raise InvalidProgram("a shape has an unset dimension: give its size or its symbol")
        if isinstance(dim, str):
            if not e.knows(dim):
                raise InvalidProgram(f"the symbol {dim!r} is the size of no input's axis")
            result.append(symbol(dim))
        elif dim < 0:
            raise InvalidProgram(f"a shape has the size {dim}: sizes are from 0")
        else:
            result.append(dim)
    return tuple(result)


_X = Operand("x", ANY)
_SHAPE = "shape"

CREATION = Group(
    "Values from nothing",
    (
        Op(
            "constant",
            "A tensor by value. `Graph.constants` does the same for values with names of their own.",
            (),
            constant,
            "the dims and dtype of `value`",
            "`stablehlo.constant`",
            (Attribute("value", "tensor", "The tensor; one element where all are equal."),),
        ),
        Op(
            "full",
            "One number everywhere.",
            (),
            full,
            "`shape` in `dtype`",
            "`stablehlo.constant`, then `stablehlo.broadcast_in_dim`",
            (
                Attribute("value", "number", "The number; `dtype` must have it, floats round."),
                Attribute("dtype", "dtype", "The dtype of the result."),
                Attribute("shape", _SHAPE, "The shape of the result."),
            ),
        ),
        Op(
            "scalar_like",
            "A number in the dtype of another value, whatever that is.",
            (_X,),
            scalar_like,
            "rank 0, the dtype of `x`",
            "`stablehlo.constant`",
            (Attribute("value", "number", "The number; the dtype of `x` must have it, floats round."),),
        ),
        Op(
            "iota",
            "0, 1, 2, ... along an axis.",
            (),
            iota,
            "`shape` in `dtype`",
            "`stablehlo.iota`",
            (
                Attribute("dtype", "dtype", "The dtype of the result, numbers.", choices=NUMBERS),
                Attribute("shape", _SHAPE, "The shape of the result; rank 1 at least."),
                Attribute("axis", "int", "The axis to count along.", 0),
            ),
        ),
        Op(
            "size",
            "The size of an axis as a number, also where it is open.",
            (_X,),
            size,
            "rank 0, `dtype`",
            "`stablehlo.constant`; for an open axis `stablehlo.get_dimension_size`, then `stablehlo.convert`",
            (
                Attribute("axis", "int", "The axis."),
                Attribute("dtype", "dtype", "The dtype of the result, numbers.", "i32", NUMBERS),
            ),
        ),
    ),
)
