"""Emits StableHLO text, line by line.

Dynamic dimensions have sample sizes or stay dynamic; in the second case the text has the form that JAX emits
for symbolic shapes. Checks of shapes use the symbols in both cases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.size_expression import Size, SizeExpression, evaluate, symbol
from kcache_compiler.frontends.graph.values import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    SIGNED,
    SamplingUnsupported,
    Type,
    Value,
    broadcast_dims,
    shape_text,
)
from kcache_compiler.frontends.limits import Limits, check

Number = int | float | bool

_ELEMENTS = {"c64": "complex<f32>", "c128": "complex<f64>"}
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
_NAN = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "f64": 0x7FF8000000000000}
_WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def scalar_type(dtype: str) -> str:
    """Return the MLIR type of a scalar, such as ``tensor<f32>``."""
    return f"tensor<{_ELEMENTS.get(dtype, dtype)}>"


def integers(values: Sequence[int]) -> str:
    """Return the attribute ``array<i64: 1, 2>``."""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


class Emitter:
    """The body of one function. Counts the operations that it emits.

    ``samples`` are sizes for all symbols of the inputs; without them dynamic dimensions stay dynamic.
    """

    def __init__(self, limits: Limits, samples: Mapping[str, int] | None = None) -> None:
        self.lines: list[str] = []
        self.location = ""
        self._limits = limits
        self._samples = None if samples is None else dict(samples)
        self._operation_count = 0
        self._name_count = 0
        #: Symbol -> (value, axis) with its size.
        self._sources: dict[str, tuple[Value, int]] = {}
        self._sizes: dict[Size, Value] = {}
        self._shapes: dict[tuple[Size, ...], Value] = {}

    def emit(
        self,
        op: str,
        operands: Sequence[Value],
        result: Type,
        attributes: str = "",
        region: str = "",
    ) -> Value:
        """Emit an operation with one result; the dialect of ``op`` defaults to StableHLO."""
        return self.emit_all(op, operands, (result,), attributes, region)[0]

    def emit_all(
        self,
        op: str,
        operands: Sequence[Value],
        results: Sequence[Type],
        attributes: str = "",
        region: str = "",
    ) -> tuple[Value, ...]:
        """Emit an operation with any number of results."""
        self._operation_count += 1
        check("number of operations", self._operation_count, self._limits.operations)
        for type in results:
            self.check(type)
        name = self.name()
        results_text = f"{name}:{len(results)}" if len(results) > 1 else name
        full_name = op if "." in op else f"stablehlo.{op}"
        operand_types = ", ".join(self.type_text(operand.type) for operand in operands)
        result_types = ", ".join(self.type_text(type) for type in results)
        body = f" ({{\n{region}\n}})" if region else ""
        dictionary = f" {{{attributes}}}" if attributes else ""
        arguments = ", ".join(operand.ssa for operand in operands)
        self.lines.append(
            f'{results_text} = "{full_name}"({arguments}){body}{dictionary} '
            f": ({operand_types}) -> ({result_types}){self.location}"
        )
        if len(results) == 1:
            return (Value(name, results[0]),)
        return tuple(Value(f"{name}#{index}", type) for index, type in enumerate(results))

    def name(self) -> str:
        """Return an unused SSA name."""
        self._name_count += 1
        return f"%v{self._name_count}"

    def check(self, type: Type) -> None:
        """Raise ``InvalidProgram``, ``LimitExceeded`` or ``SamplingUnsupported`` for an unusable shape."""
        check("rank of a tensor", type.rank, self._limits.rank)
        for size in type.dims:
            if isinstance(size, int) and size < 0:
                raise InvalidProgram(f"a result would have the shape {shape_text(type.dims)}")
        static_elements = math.prod(size for size in type.dims if isinstance(size, int))
        check("elements of one tensor", static_elements, self._limits.tensor_elements)
        if self._samples is not None:
            sampled_elements = math.prod(self.sample(size) for size in type.dims)
            if sampled_elements > self._limits.tensor_elements:
                raise SamplingUnsupported

    def type_text(self, type: Type) -> str:
        """Return the MLIR type, such as ``tensor<4x?xf32>``."""
        sizes = "".join(f"{self.sample(size)}x" if self.is_static((size,)) else "?x" for size in type.dims)
        return f"tensor<{sizes}{_ELEMENTS.get(type.dtype, type.dtype)}>"

    def is_static(self, dims: Sequence[Size]) -> bool:
        """Return whether these sizes are constants in the text."""
        return self._samples is not None or all(isinstance(size, int) for size in dims)

    def sample(self, size: Size) -> int:
        """Return the value of a size that is static in the text."""
        return evaluate(size, self._samples or {})

    def dense(self, type: Type, content: bytes) -> Value:
        """Emit a constant from its bytes."""
        text = f'"0x{content.hex().upper()}"' if content else ""
        return self._constant(text, type)

    def scalar(self, dtype: str, number: Number) -> Value:
        """Emit a constant of rank 0. Raises ``InvalidProgram`` if the dtype cannot hold it."""
        return self._constant(_literal(dtype, number), Type(dtype, ()))

    def _constant(self, literal: str, type: Type) -> Value:
        return self.emit("constant", (), type, f"value = dense<{literal}> : {self.type_text(type)}")

    def like(self, value: Value, number: Number) -> Value:
        """Emit a constant with the dtype and shape of a value."""
        return self.full(self.scalar(value.dtype, number), value.dims)

    def full(self, scalar: Value, dims: tuple[Size, ...]) -> Value:
        """Emit a scalar broadcast to ``dims``."""
        return self.broadcast_in_dim(scalar, dims, ()) if dims else scalar

    def bind_symbol(self, name: str, value: Value, axis: int) -> SizeExpression:
        """Return the symbol ``name``; it is read from ``axis`` of ``value`` unless it has a source."""
        self._sources.setdefault(name, (value, axis))
        return symbol(name)

    def define_sample(self, name: str, size: int) -> None:
        """Set the sample size of a symbol that is not the size of an input."""
        if self._samples is not None:
            self._samples[name] = size

    def defines_symbol(self, name: str) -> bool:
        """Return whether a symbol has a source."""
        return name in self._sources

    def size(self, size: Size) -> Value:
        """Emit a size as a scalar i32. With samples, raises ``SamplingUnsupported`` for a symbolic size."""
        if self._samples is not None and not isinstance(size, int):
            raise SamplingUnsupported
        value = self._sizes.get(size)
        if value is None:
            value = self._sizes[size] = self._size(size)
        return value

    def _size(self, size: Size) -> Value:
        if isinstance(size, int):
            return self.scalar("i32", size)
        result: Value | None = None
        for monomial, factor in size.terms:
            term = self.scalar("i32", factor) if factor != 1 or not monomial else None
            for name in monomial:
                value = self._symbol_value(name)
                term = value if term is None else self.emit("multiply", (term, value), term.type)
            assert term is not None
            result = term if result is None else self.emit("add", (result, term), term.type)
        assert result is not None
        return result

    def _symbol_value(self, name: str) -> Value:
        value = self._sizes.get(symbol(name))
        if value is None:
            source, axis = self._sources[name]
            value = self.emit("get_dimension_size", (source,), Type("i32", ()), f"dimension = {axis} : i64")
            self._sizes[symbol(name)] = value
        return value

    def shape(self, dims: tuple[Size, ...]) -> Value:
        """Emit a shape as a vector of i32."""
        vector = self._shapes.get(dims)
        if vector is None:
            unit = Type("i32", (1,))
            units = [self.emit("reshape", (self.size(size),), unit) for size in dims]
            type = Type("i32", (len(units),))
            vector = (
                units[0] if len(units) == 1 else self.emit("concatenate", units, type, "dimension = 0 : i64")
            )
            self._shapes[dims] = vector
        return vector

    def broadcast_in_dim(self, value: Value, dims: tuple[Size, ...], axes: Sequence[int]) -> Value:
        """Broadcast ``value``, whose axis ``i`` is axis ``axes[i]`` of the result."""
        type = Type(value.dtype, dims)
        attribute = f"broadcast_dimensions = {integers(axes)}"
        if self.is_static(dims):
            return self.emit("broadcast_in_dim", (value,), type, attribute)
        return self.emit("dynamic_broadcast_in_dim", (value, self.shape(dims)), type, attribute)

    def broadcast_to(self, value: Value, dims: tuple[Size, ...]) -> Value:
        """Broadcast ``value`` by NumPy's rule; return it unchanged if it has the shape."""
        if value.dims == dims:
            return value
        return self.broadcast_in_dim(value, dims, range(len(dims) - len(value.dims), len(dims)))

    def broadcast_together(self, *values: Value) -> list[Value]:
        """Broadcast all values to their common shape by NumPy's rule."""
        dims = broadcast_dims(values)
        return [self.broadcast_to(value, dims) for value in values]

    def reshape(self, value: Value, dims: tuple[Size, ...]) -> Value:
        """Reshape ``value``; the caller has checked the number of elements."""
        if value.dims == dims:
            return value
        type = Type(value.dtype, dims)
        if self.is_static(dims):
            return self.emit("reshape", (value,), type)
        return self.emit("dynamic_reshape", (value, self.shape(dims)), type)

    def iota(self, dtype: str, dims: tuple[Size, ...], axis: int) -> Value:
        """Emit the indices along ``axis``."""
        type, attribute = Type(dtype, dims), f"iota_dimension = {axis} : i64"
        if self.is_static(dims):
            return self.emit("iota", (), type, attribute)
        return self.emit("dynamic_iota", (self.shape(dims),), type, attribute)


def combiner(op: str, dtype: str) -> str:
    """Return a region that combines two scalars by a StableHLO operation."""
    scalar = scalar_type(dtype)
    return (
        f"^bb0(%l: {scalar}, %r: {scalar}):\n"
        f'  %s = "stablehlo.{op}"(%l, %r) : ({scalar}, {scalar}) -> {scalar}\n'
        f'  "stablehlo.return"(%s) : ({scalar}) -> ()'
    )


def _literal(dtype: str, number: Number) -> str:
    if dtype == "i1":
        if number not in (0, 1):
            raise InvalidProgram(f"{number} is not a value of i1: use 0 or 1")
        return "true" if number else "false"
    if dtype in INTEGERS:
        return _integer(dtype, number)
    real_dtype = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    text = _float(real_dtype, float(number))
    return f"({text}, {_float(real_dtype, 0.0)})" if dtype in COMPLEX else text


def _integer(dtype: str, number: Number) -> str:
    if isinstance(number, float):
        if not number.is_integer():
            raise InvalidProgram(f"{number} is not a value of {dtype}: use an integer")
        number = int(number)
    bits = int(dtype.lstrip("ui"))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype in SIGNED else (0, (1 << bits) - 1)
    if not low <= number <= high:
        raise InvalidProgram(f"{number} is not a value of {dtype}: use {low} to {high}")
    return str(int(number))


def _float(dtype: str, number: float) -> str:
    assert dtype in FLOATS
    if math.isfinite(number):
        return f"{number:.17e}"
    bits = _NAN[dtype] if math.isnan(number) else _INFINITY[dtype]
    if number < 0:
        bits |= 1 << (_WIDTH[dtype] - 1)
    return f"0x{bits:0{_WIDTH[dtype] // 4}X}"
