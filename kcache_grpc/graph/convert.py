"""What callers give, as fields of the message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import graph_pb2 as pb
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.wire import dtype_to_proto
from kcache_grpc.runtime.dtypes import PLAIN, numpy_dtypes

if TYPE_CHECKING:
    from kcache_grpc.graph.value import Value

Number: TypeAlias = int | float | bool
#: An operand: a value, an array (becomes a constant) or a number (in the dtype of the first value).
ValueLike: TypeAlias = "Value | Number | npt.NDArray[Any]"
#: kcache's name of a dtype ("f32"), NumPy's ("float32"), or a NumPy dtype.
DtypeLike: TypeAlias = "str | np.dtype[Any] | type[Any]"
#: A size, the name of a symbol, or ``None``: a dynamic axis.
Dim: TypeAlias = int | str | None
Dims: TypeAlias = Sequence[Dim]
#: Anything that NumPy makes an array of.
ArrayLike: TypeAlias = npt.ArrayLike

_MAX_INT = 2**63 - 1
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def dtype_of(dtype: DtypeLike) -> common_pb2.DataType:
    """The enum's value. Raises ``ArgumentError``."""
    if isinstance(dtype, str) and dtype in PLAIN:
        return dtype_to_proto(dtype)
    try:
        known: Any = np.dtype(dtype)
    except TypeError:
        raise ArgumentError(f"{dtype!r} is no dtype: use one of {', '.join(PLAIN)}") from None
    return dtype_to_proto(_name_of(known))


def _name_of(dtype: Any) -> str:
    if dtype.name == "bfloat16":
        return "bf16"
    known = numpy_dtypes()
    names = [name for name in PLAIN if known[name] == dtype.newbyteorder("=") and name != "bf16"]
    if not names:
        raise ArgumentError(f"NumPy's {dtype.name} is no dtype of kcache: use one of {', '.join(PLAIN)}")
    return names[0]


def dimensions(dims: Dims, subject: str, lowest: int = 0) -> list[pb.GraphDimension]:
    """Sizes, symbols and open axes. Raises ``ArgumentError``."""
    if isinstance(dims, str) or not isinstance(dims, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"{subject} is {dims!r}: give a sequence of sizes, symbols and None")
    return [_dimension(dim, subject, lowest) for dim in dims]


def _dimension(dim: Any, subject: str, lowest: int) -> pb.GraphDimension:
    if dim is None:
        return pb.GraphDimension()
    if isinstance(dim, str):
        if not _SYMBOL.fullmatch(dim):
            raise ArgumentError(f"the symbol {dim[:80]!r} in {subject} is no word of letters, digits and _")
        return pb.GraphDimension(symbol=dim)
    size = integer(dim, f"a size of {subject}")
    if size < lowest:
        raise ArgumentError(
            f"a size of {subject} is {size}: sizes are from {lowest}, and open axes are None or a name"
        )
    return pb.GraphDimension(size=size)


def encoded(text: str, subject: str) -> bytes:
    """A text as the message holds it. Raises ``ArgumentError`` for one that is not valid Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{subject} is not valid Unicode: {error}") from None


def integer(value: Any, subject: str) -> int:
    """An int that fits the message. Raises ``ArgumentError``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ArgumentError(f"{subject} is {value!r}, not an int")
    number = int(cast("Any", value))
    if not -_MAX_INT - 1 <= number <= _MAX_INT:
        raise ArgumentError(f"{subject} is {number}, which does not fit 64 bits")
    return number


def tensor(value: ArrayLike, dtype: DtypeLike | None) -> pb.GraphTensor:
    """A tensor by value. Raises ``ArgumentError`` for what no buffer holds."""
    if dtype is None and not hasattr(value, "dtype"):
        raise ArgumentError('Python numbers have no dtype of their own: give one, as dtype="f32"')
    try:
        array: Any = np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"no array can be made of the constant: {error}") from None
    wanted = dtype_of(array.dtype if dtype is None else dtype)
    name = common_pb2.DataType.Name(wanted).removeprefix("DATA_TYPE_").lower()
    stored: Any = _bfloat16(array) if name == "bf16" else _converted(array, name)
    content = stored.astype(stored.dtype.newbyteorder("<"), copy=False).tobytes()
    each = stored.dtype.itemsize
    if stored.size > 1 and content == content[:each] * stored.size:
        content = content[:each]
    return pb.GraphTensor(dtype=wanted, dims=array.shape, content=content)


def _converted(array: Any, name: str) -> Any:
    target: Any = numpy_dtypes()[name]
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        raise ArgumentError(f"a constant has the dtype {array.dtype.name}, which no buffer holds")
    if array.dtype.kind == "c" and target.kind != "c":
        raise ArgumentError(f"a complex constant is no {name}: take its real part")
    with np.errstate(all="ignore"):
        return array.astype(target)


def _bfloat16(array: Any) -> Any:
    """The bits, rounded to even."""
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16)
    bits = _converted(array, "f32").view(np.uint32)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rounded: Any = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(nan, 0x7FC0, rounded).astype(np.uint16)
