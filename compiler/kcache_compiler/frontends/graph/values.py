"""Types and values during the lowering of a graph, and the checks that all operations share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.size_expression import Size

SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
REALS = (*INTEGERS, *FLOATS)
NUMBERS = (*REALS, *COMPLEX)
BITS = ("i1", *INTEGERS)
ANY = ("i1", *NUMBERS)

#: Complex dtype -> dtype of its real and imaginary part, and back.
REAL_OF = {"c64": "f32", "c128": "f64"}
COMPLEX_OF = {"f32": "c64", "f64": "c128"}


@dataclass(frozen=True)
class Type:
    """An element type and sizes."""

    dtype: str
    dims: tuple[Size, ...]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    def __str__(self) -> str:
        return f"{self.dtype}{shape_text(self.dims)}"


@dataclass(frozen=True)
class Value:
    """An SSA value and its name in the program, empty for intermediate values of a composite."""

    ssa: str
    type: Type
    label: str = ""

    @property
    def dims(self) -> tuple[Size, ...]:
        """The sizes."""
        return self.type.dims

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.type.dtype

    def __str__(self) -> str:
        return f"{self.label!r} ({self.type})" if self.label else str(self.type)


class StaticSizeRequired(Exception):
    """An operation whose StableHLO form needs a static size for a dynamic dimension."""


class SamplingUnsupported(Exception):
    """A graph that cannot be lowered at sample sizes: it computes with them, or they are too large."""


def shape_text(dims: Sequence[Size]) -> str:
    """Return a shape as text, ``[4,n]``."""
    return f"[{','.join(map(str, dims))}]"


def same_dtype(*values: Value) -> str:
    """Return the common dtype of all values. There are no implicit conversions."""
    first = values[0]
    for value in values[1:]:
        if value.dtype != first.dtype:
            raise InvalidProgram(f"{first} and {value} differ in dtype: convert one of them")
    return first.dtype


def axis_of(axis: int, rank: int, name: str = "axis") -> int:
    """Return an axis counted from 0; negative axes count from the end."""
    if rank == 0:
        raise InvalidProgram(f"{name} is {axis}, but a scalar has no axes")
    if not -rank <= axis < rank:
        raise InvalidProgram(f"{name} is {axis}, for a value of rank {rank}: use {-rank} to {rank - 1}")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int, name: str = "axes") -> tuple[int, ...]:
    """Return distinct axes counted from 0."""
    normalized = tuple(axis_of(axis, rank, name) for axis in axes)
    if len(set(normalized)) != len(normalized):
        raise InvalidProgram(f"{name} {list(axes)} contain an axis twice")
    return normalized


def static_size(size: Size, axis: str, reason: str) -> int:
    """Return a size that must be static; ``reason`` is for the error."""
    if not isinstance(size, int):
        raise StaticSizeRequired(f"{axis} is dynamic: {reason}")
    return size


def require_static(value: Value, axis: int, reason: str) -> int:
    """Return the size of an axis that must be static; ``reason`` is for the error."""
    return static_size(value.dims[axis], f"axis {axis} of {value}", reason)


def broadcast_dims(values: Sequence[Value]) -> tuple[Size, ...]:
    """Return the common shape by NumPy's rule: axes are aligned at the end, sizes are equal or 1.

    A dynamic dimension is never assumed to be 1.
    """
    rank = max(len(value.dims) for value in values)
    result: list[Size] = [1] * rank
    for value in values:
        for axis, size in enumerate(value.dims, rank - len(value.dims)):
            if result[axis] == 1:
                result[axis] = size
            elif size not in (1, result[axis]):
                names = " and ".join(map(str, values))
                raise InvalidProgram(
                    f"{names} do not broadcast: axis {axis - rank} has the sizes {result[axis]} and {size}"
                )
    return tuple(result)
