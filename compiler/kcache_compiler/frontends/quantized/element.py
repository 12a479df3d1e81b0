"""Quantized element types as plain values."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native
from kcache_compiler.types import Quantization

#: Float type -> bits of its significand, and the exponents of its smallest and largest power of two.
FLOATS = {"f16": (11, -24, 15), "bf16": (8, -133, 127), "f32": (24, -149, 127), "f64": (53, -1074, 1023)}


@dataclass(frozen=True)
class Quantized:
    """A quantized element type: ``real = (integer - zero_point) * scale``.

    ``storage`` is the integer type, from ``low`` to ``high``; ``scales`` and ``zero_points`` have one element
    each, or as many as the tensor has along ``axis``.
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
        """Bits of the storage type."""
        return int(self.storage.lstrip("ui"))

    @property
    def limits(self) -> tuple[int, int]:
        """The least and greatest number of the storage type."""
        if self.storage.startswith("u"):
            return 0, (1 << self.width) - 1
        return -(1 << self.width - 1), (1 << self.width - 1) - 1

    @property
    def carrier(self) -> str:
        """The type that holds such integers inside of a program: a byte where storage is narrower."""
        return self.storage if self.width >= 8 else self.storage.rstrip("24") + "8"

    @property
    def of_buffer(self) -> Quantization:
        """What a caller must know of a buffer of such integers."""
        return Quantization(self.expressed, self.low, self.high, self.scales, self.zero_points, self.axis)


def quantized(type: Native) -> Quantized | None:
    """The element type of a tensor type where it is quantized.

    Raises ``InvalidProgram`` for what the specification's constraints on the type forbid, and
    ``UnsupportedOp`` for a type that only other dialects have.
    """
    if not isinstance(type, mlir.native_ir().RankedTensorType):
        return None
    element = type.element_type
    kinds: Native = importlib.import_module("torch_mlir.dialects.quant")
    if not isinstance(element, kinds.QuantizedType):
        return None
    if isinstance(element, kinds.UniformQuantizedType):
        scales, zeros, axis = [element.scale], [element.zero_point], None
    elif isinstance(element, kinds.UniformQuantizedPerAxisType):
        scales, zeros, axis = list(element.scales), list(element.zero_points), element.quantized_dimension
    else:
        raise UnsupportedOp("quant.uniform", f"{element} is quantized neither as a whole nor along one axis")
    expressed = str(element.expressed_type)
    if expressed not in FLOATS:
        raise UnsupportedOp(
            "quant.uniform", f"{element} stands for {expressed}: give it f16, bf16, f32 or f64"
        )
    sign = "" if element.is_signed else "u"
    found = Quantized(
        f"{sign}i{element.storage_type_integral_width}",
        element.storage_type_min,
        element.storage_type_max,
        expressed,
        tuple(map(float, scales)),
        tuple(map(int, zeros)),
        axis,
    )
    _check(found, type)
    return found


def _check(found: Quantized, type: Native) -> None:
    """Constraints C6 to C13 of the specification on quantized element types and tensors."""
    _, least, most = FLOATS[found.expressed]
    for scale in found.scales:
        if not 2.0 ** (least - 1) < scale < 2.0**most * 2:
            raise InvalidProgram(
                f"quant.uniform: C6, C7: scale {scale!r} in {type} is no positive finite number of "
                f"{found.expressed}"
            )
    for zero in found.zero_points:
        if not found.low <= zero <= found.high:
            raise InvalidProgram(
                f"quant.uniform: C8: zero point {zero} in {type} lies outside of its storage, "
                f"{found.low} to {found.high}"
            )
    if found.axis is None:
        return
    if not 0 <= found.axis < type.rank:
        raise InvalidProgram(f"quant.uniform: C12: {type} has no dimension {found.axis}")
    count = len(found.scales)
    if not type.is_dynamic_dim(found.axis) and type.get_dim_size(found.axis) != count:
        raise InvalidProgram(
            f"quant.uniform: C13: {type} has {count} scales for {type.get_dim_size(found.axis)} slices"
        )
