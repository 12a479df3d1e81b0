"""Types and values while a graph is lowered, and the checks that all operations share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.extent import Size

SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
REALS = (*INTEGERS, *FLOATS)
NUMBERS = (*REALS, *COMPLEX)
BITS = ("i1", *INTEGERS)
ANY = ("i1", *NUMBERS)

#: dtype of the parts of a complex number, and back.
PART = {"c64": "f32", "c128": "f64"}
WHOLE = {"f32": "c64", "f64": "c128"}


@dataclass(frozen=True)
class Type:
    """Element type and sizes."""

    dtype: str
    dims: tuple[Size, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.dims)

    def __str__(self) -> str:
        return f"{self.dtype}{shape_text(self.dims)}"


@dataclass(frozen=True)
class Value:
    """An SSA value, and what the program calls it (empty for what a composite makes inside)."""

    ssa: str
    type: Type
    label: str = ""

    @property
    def dims(self) -> tuple[Size, ...]:
        """Sizes."""
        return self.type.dims

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.type.dtype

    def __str__(self) -> str:
        return f"{self.label!r} ({self.type})" if self.label else str(self.type)


class OpenAxis(Exception):
    """An operation whose StableHLO needs the size of an axis that the program leaves open."""


class NeedsSizes(Exception):
    """A graph whose open axes cannot be given sample sizes: it computes with them, or they are too large."""


def shape_text(dims: Sequence[Size]) -> str:
    """``[4,n]``."""
    return f"[{','.join(map(str, dims))}]"


def same_dtype(*values: Value) -> str:
    """The one dtype of all. Nothing is converted unasked."""
    first = values[0]
    for value in values[1:]:
        if value.dtype != first.dtype:
            raise InvalidProgram(f"{first} and {value} differ in dtype: convert one of them")
    return first.dtype


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """An axis counted from 0, given from either end."""
    if rank == 0:
        raise InvalidProgram(f"{what} is {axis}, and a scalar has no axes")
    if not -rank <= axis < rank:
        raise InvalidProgram(f"{what} is {axis}, of a value of rank {rank}: use {-rank} to {rank - 1}")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int, what: str = "axes") -> tuple[int, ...]:
    """Axes counted from 0; none twice."""
    found = tuple(axis_of(axis, rank, what) for axis in axes)
    if len(set(found)) != len(found):
        raise InvalidProgram(f"{what} {list(axes)} name an axis twice")
    return found


def static_dims(value: Value, what: str) -> tuple[int, ...]:
    """The sizes of a value all of whose axes are fixed."""
    return tuple(static_size(size, f"axis {axis} of {value}", what) for axis, size in enumerate(value.dims))


def static_size(size: Size, axis: str, what: str) -> int:
    """A size that must be fixed."""
    if not isinstance(size, int):
        raise OpenAxis(f"{axis} is open: {what}")
    return size


def require_static(value: Value, axis: int, what: str) -> int:
    """The size of an axis that must be fixed."""
    return static_size(value.dims[axis], f"axis {axis} of {value}", what)


def broadcast_dims(shapes: Sequence[Value]) -> tuple[Size, ...]:
    """The NumPy rule: axes are aligned at the end; sizes are equal, or one of them is 1.

    An open axis is never taken as 1.
    """
    rank = max(len(value.dims) for value in shapes)
    result: list[Size] = [1] * rank
    for value in shapes:
        for axis, size in enumerate(value.dims, rank - len(value.dims)):
            if result[axis] == 1:
                result[axis] = size
            elif size not in (1, result[axis]):
                names = " and ".join(map(str, shapes))
                raise InvalidProgram(
                    f"{names} do not broadcast: axis {axis - rank} is {result[axis]} and {size}"
                )
    return tuple(result)
