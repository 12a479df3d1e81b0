"""A value of a graph: a handle with operators."""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Any, cast

from kcache_grpc.errors import ArgumentError

if TYPE_CHECKING:
    from kcache_grpc.graph.builder import Graph
    from kcache_grpc.graph.convert import Dim, Dims, DtypeLike, ValueLike

#: A limit beyond every size: slices are cut to the size of their axis.
_END = 2**63 - 1

Index = int | slice | EllipsisType | None


class Value:
    """A value of one graph. Operators add nodes; Python numbers become constants of the value's dtype.

    ``==`` asks whether two handles are the same value; ``graph.compare(x, y, "eq")`` compares elements.
    A handle knows its name only: dtypes and shapes are checked by whoever reads the graph.
    """

    __slots__ = ("graph", "name")

    #: NumPy arrays leave their operators to this class.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name

    def __repr__(self) -> str:
        return f"<kcache.graph.Value {self.name!r}>"

    def __bool__(self) -> bool:
        raise ArgumentError(f"{self!r} has no truth value while the graph is built: use graph.select")

    def __add__(self, other: ValueLike) -> Value:
        return self.graph.add(self, other)

    def __radd__(self, other: ValueLike) -> Value:
        return self.graph.add(other, self)

    def __sub__(self, other: ValueLike) -> Value:
        return self.graph.subtract(self, other)

    def __rsub__(self, other: ValueLike) -> Value:
        return self.graph.subtract(other, self)

    def __mul__(self, other: ValueLike) -> Value:
        return self.graph.multiply(self, other)

    def __rmul__(self, other: ValueLike) -> Value:
        return self.graph.multiply(other, self)

    def __truediv__(self, other: ValueLike) -> Value:
        return self.graph.divide(self, other)

    def __rtruediv__(self, other: ValueLike) -> Value:
        return self.graph.divide(other, self)

    def __pow__(self, other: ValueLike) -> Value:
        return self.graph.power(self, other)

    def __rpow__(self, other: ValueLike) -> Value:
        return self.graph.power(other, self)

    def __matmul__(self, other: ValueLike) -> Value:
        return self.graph.matmul(self, other)

    def __rmatmul__(self, other: ValueLike) -> Value:
        return self.graph.matmul(other, self)

    def __and__(self, other: ValueLike) -> Value:
        return self.graph.and_(self, other)

    def __or__(self, other: ValueLike) -> Value:
        return self.graph.or_(self, other)

    def __xor__(self, other: ValueLike) -> Value:
        return self.graph.xor(self, other)

    def __invert__(self) -> Value:
        return self.graph.not_(self)

    def __neg__(self) -> Value:
        return self.graph.negate(self)

    def __abs__(self) -> Value:
        return self.graph.abs(self)

    def __lt__(self, other: ValueLike) -> Value:
        return self.graph.compare(self, other, "lt")

    def __le__(self, other: ValueLike) -> Value:
        return self.graph.compare(self, other, "le")

    def __gt__(self, other: ValueLike) -> Value:
        return self.graph.compare(self, other, "gt")

    def __ge__(self, other: ValueLike) -> Value:
        return self.graph.compare(self, other, "ge")

    @property
    def T(self) -> Value:  # noqa: N802 - NumPy's name
        """Axes in reversed order."""
        return self.graph.transpose(self)

    def astype(self, dtype: DtypeLike) -> Value:
        """In another dtype."""
        return self.graph.convert(self, dtype)

    def reshape(self, *shape: Dims | Dim) -> Value:
        """In another shape, given as one sequence or as its sizes; one may be -1."""
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            return self.graph.reshape(self, shape[0])
        return self.graph.reshape(self, cast("Dims", shape))

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Value:
        """Basic indexing of NumPy: ints, slices with steps from 1, ``...`` and ``None``."""
        entries = index if isinstance(index, tuple) else (index,)
        return _indexed(self, entries)

    def __iter__(self) -> Any:
        raise ArgumentError(f"{self!r} cannot be iterated over: its shape is not known here")


def _indexed(value: Value, entries: tuple[Index, ...]) -> Value:
    """Emit slices and reshapes for a basic index, as in NumPy. Raises ``ArgumentError`` for other indices."""
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise ArgumentError("an index has at most one '...'")
    behind = entries.index(Ellipsis) if Ellipsis in entries else len(entries)
    if None in entries[behind:]:
        raise ArgumentError("None behind '...' needs the rank, which is not known here: use expand_dims")
    cut: list[tuple[int, int, int, int]] = []
    gone: list[int] = []
    consumed = [entry for entry in entries[:behind] if entry is not None]
    last = entries[behind + 1 :]
    places = [*range(len(consumed)), *range(-len(last), 0)]
    for axis, entry in zip(places, (*consumed, *last), strict=True):
        if isinstance(entry, slice):
            bounds = _bounds(entry)
            if bounds != (0, _END, 1):
                cut.append((axis, *bounds))
        elif isinstance(entry, int) and not isinstance(entry, bool):
            cut.append((axis, entry, entry + 1 if entry != -1 else _END, 1))
            gone.append(axis)
        else:
            raise ArgumentError(f"{entry!r} is no index: use ints, slices, '...' and None")
    if cut:
        axes, starts, limits, strides = (list(column) for column in zip(*cut, strict=True))
        value = value.graph.slice(value, starts, limits, strides, axes)
    if gone:
        value = value.graph.squeeze(value, gone)
    return _with_new_axes(value, entries[:behind])


def _with_new_axes(value: Value, entries: tuple[Index, ...]) -> Value:
    kept = [entry for entry in entries if entry is None or isinstance(entry, slice)]
    new = [place for place, entry in enumerate(kept) if entry is None]
    return value.graph.expand_dims(value, new) if new else value


def _bounds(entry: slice) -> tuple[int, int, int]:
    bounds: list[Any] = [entry.start, entry.stop, entry.step]
    for bound in bounds:
        if bound is not None and not isinstance(bound, int):
            raise ArgumentError(f"{bound!r} in a slice is no int: use dynamic_slice for values")
    start, stop, step = (
        bound if bound is not None else rest for bound, rest in zip(bounds, (0, _END, 1), strict=True)
    )
    if step < 1:
        raise ArgumentError(f"the step {step} of a slice is not from 1: use reverse")
    return start, stop, step
