"""Integer arithmetic at the current point, in two dialects: of scalars in the body of a generic, and of
StableHLO's tensors without axes in the body of a reduction.
"""

from __future__ import annotations

from typing import Protocol

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith

#: Comparisons by the number of ``arith`` and the name of StableHLO.
_COMPARE = {
    "EQ": arith.CmpIPredicate.eq,
    "NE": arith.CmpIPredicate.ne,
    "LT": arith.CmpIPredicate.slt,
    "GE": arith.CmpIPredicate.sge,
    "GT": arith.CmpIPredicate.sgt,
}


class Emitter(Protocol):
    """Operations on integers of ``width`` bits, 32 or 64."""

    width: int

    def constant(self, number: int) -> mlir.Value: ...
    def add(self, a: mlir.Value, b: mlir.Value) -> mlir.Value: ...
    def subtract(self, a: mlir.Value, b: mlir.Value) -> mlir.Value: ...
    def both(self, a: mlir.Value, b: mlir.Value) -> mlir.Value: ...
    def either(self, a: mlir.Value, b: mlir.Value) -> mlir.Value: ...
    def left(self, a: mlir.Value, count: mlir.Value) -> mlir.Value: ...
    def right(self, a: mlir.Value, count: mlir.Value) -> mlir.Value:
        """Without the sign."""
        ...

    def right_signed(self, a: mlir.Value, count: mlir.Value) -> mlir.Value: ...
    def compare(self, direction: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """Of signed numbers."""
        ...

    def select(self, flag: mlir.Value, a: mlir.Value, b: mlir.Value) -> mlir.Value: ...
    def of_byte(self, byte: mlir.Value) -> mlir.Value:
        """The low eight bits of the result are those of ``byte``, the others zero."""
        ...

    def to_byte(self, number: mlir.Value, kind: str) -> mlir.Value:
        """The low eight bits as ``kind``, ``i8`` or ``ui8``."""
        ...

    def bits_of(self, number: mlir.Value) -> mlir.Value:
        """Of a float; f16 and bf16 as f32."""
        ...

    def float_of(self, bits: mlir.Value) -> mlir.Value:
        """The f32 of bits."""
        ...

    def signless(self, number: mlir.Value) -> mlir.Value:
        """The bits of an integer of this width."""
        ...

    def integer_as(self, number: mlir.Value, kind: str) -> mlir.Value:
        """The same bits as an integer that may be unsigned."""
        ...

    def number_of(self, number: mlir.Value) -> mlir.Value:
        """A signed integer as f32."""
        ...

    def bits_of_scaled(self, number: mlir.Value, scale: float) -> mlir.Value:
        """Bits of the f32 product, which is exact."""
        ...

    def to_multiple(self, bits: mlir.Value, unit: float) -> mlir.Value:
        """Bits of the nearest multiple of a power of two, of a positive f32 that is not much larger."""
        ...


class Scalars:
    """``arith`` on scalars."""

    def __init__(self, width: int = 32) -> None:
        self.width = width
        self._kind = mlir.type_of(f"i{width}")

    def constant(self, number: int) -> mlir.Value:
        return mlir.constant(number, f"i{self.width}")

    def add(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return arith.addi(a, b)

    def subtract(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return arith.subi(a, b)

    def both(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return arith.andi(a, b)

    def either(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return arith.ori(a, b)

    def left(self, a: mlir.Value, count: mlir.Value) -> mlir.Value:
        return arith.shli(a, count)

    def right(self, a: mlir.Value, count: mlir.Value) -> mlir.Value:
        return arith.shrui(a, count)

    def right_signed(self, a: mlir.Value, count: mlir.Value) -> mlir.Value:
        return arith.shrsi(a, count)

    def compare(self, direction: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return arith.cmpi(_COMPARE[direction], a, b)

    def select(self, flag: mlir.Value, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return arith.select(flag, a, b)

    def of_byte(self, byte: mlir.Value) -> mlir.Value:
        return arith.extui(self._kind, byte)

    def to_byte(self, number: mlir.Value, kind: str) -> mlir.Value:
        return arith.trunci(mlir.type_of("i8"), number)

    def bits_of(self, number: mlir.Value) -> mlir.Value:
        if str(number.type) in ("f16", "bf16"):
            number = arith.extf(mlir.type_of("f32"), number)
        return arith.bitcast(self._kind, number)

    def float_of(self, bits: mlir.Value) -> mlir.Value:
        return arith.bitcast(mlir.type_of("f32"), bits)

    def bits_of_scaled(self, number: mlir.Value, scale: float) -> mlir.Value:
        single = mlir.type_of("f32")
        factor = mlir.float_constant(scale, single)
        return self.bits_of(arith.mulf(self.number_of(number), factor))

    def to_multiple(self, bits: mlir.Value, unit: float) -> mlir.Value:
        single = mlir.type_of("f32")
        shift = mlir.float_constant(unit * (1 << 23), single)
        moved = arith.addf(self.float_of(bits), shift)
        return self.bits_of(arith.subf(moved, shift))

    def signless(self, number: mlir.Value) -> mlir.Value:
        return number

    def integer_as(self, number: mlir.Value, kind: str) -> mlir.Value:
        return number

    def number_of(self, number: mlir.Value) -> mlir.Value:
        return arith.sitofp(mlir.type_of("f32"), number)


class Tensors:
    """StableHLO on tensors without axes."""

    def __init__(self, width: int = 32) -> None:
        self.width = width
        self._kind = mlir.type_of(f"tensor<i{width}>")

    def _binary(self, op: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return mlir.value(f"stablehlo.{op}", [a, b], a.type)

    def _unary(self, op: str, a: mlir.Value, kind: mlir.Type) -> mlir.Value:
        return a if a.type == kind else mlir.value(f"stablehlo.{op}", [a], kind)

    def constant(self, number: int) -> mlir.Value:
        value = mlir.attribute(f"dense<{number}> : {self._kind}")
        return mlir.value("stablehlo.constant", (), self._kind, value=value)

    def add(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self._binary("add", a, b)

    def subtract(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self._binary("subtract", a, b)

    def both(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self._binary("and", a, b)

    def either(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self._binary("or", a, b)

    def left(self, a: mlir.Value, count: mlir.Value) -> mlir.Value:
        return self._binary("shift_left", a, count)

    def right(self, a: mlir.Value, count: mlir.Value) -> mlir.Value:
        return self._binary("shift_right_logical", a, count)

    def right_signed(self, a: mlir.Value, count: mlir.Value) -> mlir.Value:
        return self._binary("shift_right_arithmetic", a, count)

    def compare(self, direction: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        way = mlir.attribute(f"#stablehlo<comparison_direction {direction}>")
        return mlir.value("stablehlo.compare", [a, b], mlir.type_of("tensor<i1>"), comparison_direction=way)

    def select(self, flag: mlir.Value, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return mlir.value("stablehlo.select", [flag, a, b], a.type)

    def of_byte(self, byte: mlir.Value) -> mlir.Value:
        return self.both(self._unary("convert", byte, self._kind), self.constant(0xFF))

    def to_byte(self, number: mlir.Value, kind: str) -> mlir.Value:
        return self._unary("convert", number, mlir.type_of(f"tensor<{kind}>"))

    def bits_of(self, number: mlir.Value) -> mlir.Value:
        if str(mlir.element_type(number.type)) in ("f16", "bf16"):
            number = self._unary("convert", number, mlir.type_of("tensor<f32>"))
        return self._unary("bitcast_convert", number, self._kind)

    def float_of(self, bits: mlir.Value) -> mlir.Value:
        return self._unary("bitcast_convert", bits, mlir.type_of("tensor<f32>"))

    def bits_of_scaled(self, number: mlir.Value, scale: float) -> mlir.Value:
        single = mlir.type_of("tensor<f32>")
        value = mlir.attribute(f"dense<{scale:.20e}> : tensor<f32>")
        factor = mlir.value("stablehlo.constant", (), single, value=value)
        return self.bits_of(self._binary("multiply", self.number_of(number), factor))

    def to_multiple(self, bits: mlir.Value, unit: float) -> mlir.Value:
        single = mlir.type_of("tensor<f32>")
        value = mlir.attribute(f"dense<{unit * (1 << 23):.20e}> : tensor<f32>")
        shift = mlir.value("stablehlo.constant", (), single, value=value)
        moved = self._binary("add", self.float_of(bits), shift)
        return self.bits_of(self._binary("subtract", moved, shift))

    def signless(self, number: mlir.Value) -> mlir.Value:
        return self._unary("convert", number, self._kind)

    def integer_as(self, number: mlir.Value, kind: str) -> mlir.Value:
        return self._unary("convert", number, mlir.type_of(f"tensor<{kind}>"))

    def number_of(self, number: mlir.Value) -> mlir.Value:
        return self._unary("convert", number, mlir.type_of("tensor<f32>"))
