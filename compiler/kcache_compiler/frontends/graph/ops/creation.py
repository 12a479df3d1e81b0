"""Operations that create values, and the sizes of shape attributes."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.emitter import Emitter, Number
from kcache_compiler.frontends.graph.ops.elementwise import convert
from kcache_compiler.frontends.graph.program import Dim, GraphTensor, ShapeValue
from kcache_compiler.frontends.graph.size_expression import Size, symbol
from kcache_compiler.frontends.graph.table import Attribute, Group, Op, Operand
from kcache_compiler.frontends.graph.values import ANY, NUMBERS, Type, Value, axis_of, shape_text
from kcache_compiler.types import DTYPE_BYTES


def constant(e: Emitter, *, value: GraphTensor) -> Value:
    """Emit a constant tensor. Raises ``InvalidProgram`` for content of the wrong length."""
    if any(size < 0 for size in value.dims):
        raise InvalidProgram(f"the constant has the shape {shape_text(value.dims)}: sizes must be at least 0")
    type = Type(value.dtype, value.dims)
    e.check(type)
    width, count = DTYPE_BYTES[value.dtype], 1
    for size in value.dims:
        count *= size
    if len(value.content) not in (width * count, width if count else 0):
        raise InvalidProgram(
            f"the content of a constant {type} has {len(value.content)} bytes: it takes {width * count}, or "
            f"{width} for one element that is repeated"
        )
    if value.dtype == "i1" and value.content.translate(None, b"\0\1"):
        raise InvalidProgram(f"the content of a constant {type} contains bytes other than 0 and 1")
    return e.dense(type, value.content)


def full(e: Emitter, *, value: Number, dtype: str, shape: ShapeValue) -> Value:
    """Emit a tensor filled with a constant."""
    return e.full(e.scalar(dtype, value), sizes_of(e, shape.dims))


def scalar_like(e: Emitter, x: Value, *, value: Number) -> Value:
    """Emit a scalar constant in the dtype of ``x``."""
    return e.scalar(x.dtype, value)


def iota(e: Emitter, *, dtype: str, shape: ShapeValue, axis: int = 0) -> Value:
    """Emit the indices along an axis."""
    dims = sizes_of(e, shape.dims)
    return e.iota(dtype, dims, axis_of(axis, len(dims)))


def size(e: Emitter, x: Value, *, axis: int, dtype: str = "i32") -> Value:
    """Emit the size of an axis as a scalar."""
    dim = x.dims[axis_of(axis, len(x.dims))]
    if isinstance(dim, int):
        return e.scalar(dtype, dim)
    return convert(e, e.size(dim), dtype=dtype)


def sizes_of(e: Emitter, dims: Sequence[Dim]) -> tuple[Size, ...]:
    """Return the sizes of a shape attribute, whose symbols must be those of an input."""
    result: list[Size] = []
    for dim in dims:
        if dim is None:
            raise InvalidProgram("a shape has an unset dimension: give its size or its symbol")
        if isinstance(dim, str):
            if not e.defines_symbol(dim):
                raise InvalidProgram(f"the symbol {dim!r} is not the size of an input's axis")
            result.append(symbol(dim))
        elif dim < 0:
            raise InvalidProgram(f"a shape has the size {dim}: sizes must be at least 0")
        else:
            result.append(dim)
    return tuple(result)


_X = Operand("x", ANY)
_SHAPE = "shape"

CREATION = Group(
    "Creation",
    (
        Op(
            "constant",
            "A constant tensor. `Graph.constants` holds constants with their own names.",
            (),
            constant,
            "the dims and dtype of `value`",
            "`stablehlo.constant`",
            (Attribute("value", "tensor", "The tensor; a single element if all are equal."),),
        ),
        Op(
            "full",
            "A tensor filled with one constant.",
            (),
            full,
            "`shape` in `dtype`",
            "`stablehlo.constant`, then `stablehlo.broadcast_in_dim`",
            (
                Attribute("value", "number", "The constant; `dtype` must be able to hold it, floats round."),
                Attribute("dtype", "dtype", "The dtype of the result."),
                Attribute("shape", _SHAPE, "The shape of the result."),
            ),
        ),
        Op(
            "scalar_like",
            "A scalar constant in the dtype of another value.",
            (_X,),
            scalar_like,
            "rank 0, the dtype of `x`",
            "`stablehlo.constant`",
            (
                Attribute(
                    "value", "number", "The constant; the dtype of `x` must be able to hold it, floats round."
                ),
            ),
        ),
        Op(
            "iota",
            "0, 1, 2, ... along an axis.",
            (),
            iota,
            "`shape` in `dtype`",
            "`stablehlo.iota`",
            (
                Attribute("dtype", "dtype", "The dtype of the result.", choices=NUMBERS),
                Attribute("shape", _SHAPE, "The shape of the result, of rank 1 or more."),
                Attribute("axis", "int", "The axis to count along.", 0),
            ),
        ),
        Op(
            "size",
            "The size of an axis as a scalar, also of a dynamic one.",
            (_X,),
            size,
            "rank 0, `dtype`",
            "`stablehlo.constant`; for a dynamic axis `stablehlo.get_dimension_size`, then "
            "`stablehlo.convert`",
            (
                Attribute("axis", "int", "The axis."),
                Attribute("dtype", "dtype", "The dtype of the result.", "i32", NUMBERS),
            ),
        ),
    ),
)
