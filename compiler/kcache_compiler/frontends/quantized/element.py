"""Quantized element types as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.mlir import lazy
from kcache_compiler.types import Quantization

if TYPE_CHECKING:
    from torch_mlir.ir import RankedTensorType

    from kcache_compiler.mlir.types import Type

#: Float type -> (bits of its significand, exponents of its smallest and largest power of two).
FLOATS = {"f16": (11, -24, 15), "bf16": (8, -133, 127), "f32": (24, -149, 127), "f64": (53, -1074, 1023)}


@dataclass(frozen=True)
class Quantized:
    """A quantized element type: ``real = (integer - zero_point) * scale``.

    ``storage`` is the integer type, of which ``low`` to ``high`` are used; ``scales`` and ``zero_points``
    have one entry, or one for each index of the tensor along ``axis``.
    """

    storage: str
    low: int
    high: int
    expressed: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None

    @property
    def width(self) -> int:
        """The number of bits of the storage type."""
        return int(self.storage.lstrip("ui"))

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and largest value of the storage type."""
        if self.storage.startswith("u"):
            return 0, (1 << self.width) - 1
        return -(1 << self.width - 1), (1 << self.width - 1) - 1

    @property
    def carrier(self) -> str:
        """The integer type that holds the elements inside a program: at least 8 bits wide."""
        return self.storage if self.width >= 8 else self.storage.rstrip("24") + "8"

    @property
    def of_buffer(self) -> Quantization:
        """The quantization of a buffer with such elements, for callers."""
        return Quantization(self.expressed, self.low, self.high, self.scales, self.zero_points, self.axis)


def quantized(type: Type) -> Quantized | None:
    """Return the element type of a tensor type if it is quantized, otherwise None.

    Raises ``InvalidProgram`` if it violates a constraint of the specification, and ``UnsupportedOp`` for
    types that only other dialects have.
    """
    tensor = lazy.ranked(type)
    if tensor is None:
        return None
    from torch_mlir.dialects import quant

    element = tensor.element_type
    if not isinstance(element, quant.QuantizedType):
        return None
    if isinstance(element, quant.UniformQuantizedType):
        scales, zeros, axis = [element.scale], [element.zero_point], None
    elif isinstance(element, quant.UniformQuantizedPerAxisType):
        scales, zeros, axis = list(element.scales), list(element.zero_points), element.quantized_dimension
    else:
        raise UnsupportedOp("quant.uniform", f"{element} is quantized neither per tensor nor per axis")
    expressed = str(element.expressed_type)
    if expressed not in FLOATS:
        raise UnsupportedOp("quant.uniform", f"{element} expresses {expressed}: use f16, bf16, f32 or f64")
    sign = "" if element.is_signed else "u"
    result = Quantized(
        f"{sign}i{element.storage_type_integral_width}",
        element.storage_type_min,
        element.storage_type_max,
        expressed,
        tuple(map(float, scales)),
        tuple(map(int, zeros)),
        axis,
    )
    _check(result, tensor)
    return result


def _check(element: Quantized, type: RankedTensorType) -> None:
    """Check the constraints C6 to C13 of the specification on quantized element types and tensors."""
    _, least, greatest = FLOATS[element.expressed]
    for scale in element.scales:
        if not 2.0 ** (least - 1) < scale < 2.0**greatest * 2:
            raise InvalidProgram(
                f"quant.uniform: C6, C7: scale {scale!r} in {type} is not a positive finite value of "
                f"{element.expressed}"
            )
    for zero in element.zero_points:
        if not element.low <= zero <= element.high:
            raise InvalidProgram(
                f"quant.uniform: C8: zero point {zero} in {type} is outside the range of its storage, "
                f"{element.low} to {element.high}"
            )
    if element.axis is None:
        return
    if not 0 <= element.axis < type.rank:
        raise InvalidProgram(f"quant.uniform: C12: {type} has no dimension {element.axis}")
    count = len(element.scales)
    if not type.is_dynamic_dim(element.axis) and type.get_dim_size(element.axis) != count:
        raise InvalidProgram(
            f"quant.uniform: C13: {type} has {count} scales for {type.get_dim_size(element.axis)} slices"
        )
