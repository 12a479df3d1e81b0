"""StableHLO text, line by line.

Open axes have sample sizes, or are dynamic: then what is emitted for them is what JAX emits for symbolic
shapes. Checks are over their symbols either way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.extent import Extent, Size, evaluate, symbol
from kcache_compiler.frontends.graph.values import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    SIGNED,
    NeedsSizes,
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
    """``tensor<f32>``."""
    return f"tensor<{_ELEMENTS.get(dtype, dtype)}>"


def integers(values: Sequence[int]) -> str:
    """An attribute ``array<i64: 1, 2>``."""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


class Emitter:
    """The body of one function. Operations are counted as they are emitted.

    ``samples`` are sizes for all symbols of the inputs; without them open axes are dynamic.
    """

    def __init__(self, limits: Limits, samples: Mapping[str, int] | None = None) -> None:
        self.lines: list[str] = []
        self.location = ""
        self._limits = limits
        self._samples = None if samples is None else dict(samples)
        self._count = 0
        self._fresh = 0
        #: symbol -> the value and the axis that have its size
        self._sources: dict[str, tuple[Value, int]] = {}
        self._sizes: dict[Size, Value] = {}
        self._shapes: dict[tuple[Size, ...], Value] = {}

    # -- any operation

    def emit(
        self,
        op: str,
        operands: Sequence[Value],
        result: Type,
        attributes: str = "",
        region: str = "",
    ) -> Value:
        """One operation with one result. ``op`` without a dialect is StableHLO's."""
        return self.emit_all(op, operands, (result,), attributes, region)[0]

    def emit_all(
        self,
        op: str,
        operands: Sequence[Value],
        results: Sequence[Type],
        attributes: str = "",
        region: str = "",
    ) -> tuple[Value, ...]:
        """One operation with any number of results."""
        self._count += 1
        check("number of operations", self._count, self._limits.operations)
        for type in results:
            self.check(type)
        name = self.name()
        head = f"{name}:{len(results)}" if len(results) > 1 else name
        full = op if "." in op else f"stablehlo.{op}"
        types = ", ".join(self.type_text(operand.type) for operand in operands)
        given = ", ".join(self.type_text(type) for type in results)
        body = f" ({{\n{region}\n}})" if region else ""
        dictionary = f" {{{attributes}}}" if attributes else ""
        arguments = ", ".join(operand.ssa for operand in operands)
        self.lines.append(
            f'{head} = "{full}"({arguments}){body}{dictionary} : ({types}) -> ({given}){self.location}'
        )
        if len(results) == 1:
            return (Value(name, results[0]),)
        return tuple(Value(f"{name}#{index}", type) for index, type in enumerate(results))

    def name(self) -> str:
        """A name that no value has."""
        self._fresh += 1
        return f"%v{self._fresh}"

    def check(self, type: Type) -> None:
        """Raises for a shape that no tensor may have."""
        check("rank of a tensor", type.rank, self._limits.rank)
        for size in type.dims:
            if isinstance(size, int) and size < 0:
                raise InvalidProgram(f"a result would have the shape {shape_text(type.dims)}")
        fixed = math.prod(size for size in type.dims if isinstance(size, int))
        check("elements of one tensor", fixed, self._limits.tensor_elements)
        if self._samples is not None:
            sampled = math.prod(self.sample(size) for size in type.dims)
            if sampled > self._limits.tensor_elements:
                raise NeedsSizes

    def type_text(self, type: Type) -> str:
        """``tensor<4x?xf32>``."""
        sizes = "".join(f"{self.sample(size)}x" if self.fixed((size,)) else "?x" for size in type.dims)
        return f"tensor<{sizes}{_ELEMENTS.get(type.dtype, type.dtype)}>"

    def fixed(self, dims: Sequence[Size]) -> bool:
        """Whether sizes are numbers in the text."""
        return self._samples is not None or all(isinstance(size, int) for size in dims)

    def sample(self, size: Size) -> int:
        """The number that a fixed size is."""
        return evaluate(size, self._samples or {})

    # -- constants

    def dense(self, type: Type, content: bytes) -> Value:
        """A constant from its bytes."""
        text = f'"0x{content.hex().upper()}"' if content else ""
        return self._constant(text, type)

    def scalar(self, dtype: str, number: Number) -> Value:
        """A constant of rank 0. Raises ``InvalidProgram`` for a number that the dtype does not have."""
        return self._constant(_literal(dtype, number), Type(dtype, ()))

    def _constant(self, literal: str, type: Type) -> Value:
        return self.emit("constant", (), type, f"value = dense<{literal}> : {self.type_text(type)}")

    def like(self, value: Value, number: Number) -> Value:
        """A number in the dtype and shape of a value."""
        return self.full(self.scalar(value.dtype, number), value.dims)

    def full(self, scalar: Value, dims: tuple[Size, ...]) -> Value:
        """A scalar, repeated."""
        return self.broadcast_in_dim(scalar, dims, ()) if dims else scalar

    # -- sizes

    def bind(self, name: str, value: Value, axis: int) -> Extent:
        """The symbol ``name``, read from an axis of a value unless it is read from somewhere already."""
        self._sources.setdefault(name, (value, axis))
        return symbol(name)

    def define(self, name: str, size: int) -> None:
        """Give a symbol that no input has its sample."""
        if self._samples is not None:
            self._samples[name] = size

    def knows(self, name: str) -> bool:
        """Whether a symbol is read from somewhere."""
        return name in self._sources

    def size(self, size: Size) -> Value:
        """A size as a scalar i32. Raises ``NeedsSizes`` where an open one is a sample."""
        if self._samples is not None and not isinstance(size, int):
            raise NeedsSizes
        known = self._sizes.get(size)
        if known is None:
            known = self._sizes[size] = self._size(size)
        return known

    def _size(self, size: Size) -> Value:
        if isinstance(size, int):
            return self.scalar("i32", size)
        result: Value | None = None
        for monomial, factor in size.terms:
            term = self.scalar("i32", factor) if factor != 1 or not monomial else None
            for name in monomial:
                atom = self._atom(name)
                term = atom if term is None else self.emit("multiply", (term, atom), term.type)
            assert term is not None
            result = term if result is None else self.emit("add", (result, term), term.type)
        assert result is not None
        return result

    def _atom(self, name: str) -> Value:
        known = self._sizes.get(symbol(name))
        if known is None:
            source, axis = self._sources[name]
            known = self.emit("get_dimension_size", (source,), Type("i32", ()), f"dimension = {axis} : i64")
            self._sizes[symbol(name)] = known
        return known

    def shape(self, dims: tuple[Size, ...]) -> Value:
        """A shape as a vector of i32."""
        known = self._shapes.get(dims)
        if known is None:
            one = Type("i32", (1,))
            parts = [self.emit("reshape", (self.size(size),), one) for size in dims]
            whole = Type("i32", (len(parts),))
            known = (
                parts[0] if len(parts) == 1 else self.emit("concatenate", parts, whole, "dimension = 0 : i64")
            )
            self._shapes[dims] = known
        return known

    # -- what shapes are made of

    def broadcast_in_dim(self, value: Value, dims: tuple[Size, ...], axes: Sequence[int]) -> Value:
        """``value``, whose axis ``i`` is axis ``axes[i]`` of the result, repeated along the others."""
        type = Type(value.dtype, dims)
        attribute = f"broadcast_dimensions = {integers(axes)}"
        if self.fixed(dims):
            return self.emit("broadcast_in_dim", (value,), type, attribute)
        return self.emit("dynamic_broadcast_in_dim", (value, self.shape(dims)), type, attribute)

    def broadcast_to(self, value: Value, dims: tuple[Size, ...]) -> Value:
        """``value`` by the NumPy rule; itself where it has that shape."""
        if value.dims == dims:
            return value
        return self.broadcast_in_dim(value, dims, range(len(dims) - len(value.dims), len(dims)))

    def aligned(self, *values: Value) -> list[Value]:
        """All by the NumPy rule in one shape."""
        dims = broadcast_dims(values)
        return [self.broadcast_to(value, dims) for value in values]

    def reshape(self, value: Value, dims: tuple[Size, ...]) -> Value:
        """The same elements in another shape; the caller has seen that they are as many."""
        if value.dims == dims:
            return value
        type = Type(value.dtype, dims)
        if self.fixed(dims):
            return self.emit("reshape", (value,), type)
        return self.emit("dynamic_reshape", (value, self.shape(dims)), type)

    def iota(self, dtype: str, dims: tuple[Size, ...], axis: int) -> Value:
        """Indices along ``axis``."""
        type, attribute = Type(dtype, dims), f"iota_dimension = {axis} : i64"
        if self.fixed(dims):
            return self.emit("iota", (), type, attribute)
        return self.emit("dynamic_iota", (self.shape(dims),), type, attribute)


def combiner(op: str, dtype: str) -> str:
    """A region that combines two scalars by a StableHLO operation."""
    scalar = scalar_type(dtype)
    return (
        f"^bb0(%l: {scalar}, %r: {scalar}):\n"
        f'  %s = "stablehlo.{op}"(%l, %r) : ({scalar}, {scalar}) -> {scalar}\n'
        f'  "stablehlo.return"(%s) : ({scalar}) -> ()'
    )


def _literal(dtype: str, number: Number) -> str:
    if dtype == "i1":
        if number not in (0, 1):
            raise InvalidProgram(f"{number} is no i1: use 0 or 1")
        return "true" if number else "false"
    if dtype in INTEGERS:
        return _integer(dtype, number)
    part = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
    text = _float(part, float(number))
    return f"({text}, {_float(part, 0.0)})" if dtype in COMPLEX else text


def _integer(dtype: str, number: Number) -> str:
    if isinstance(number, float):
        if not number.is_integer():
            raise InvalidProgram(f"{number} is no {dtype}: use an integer")
        number = int(number)
    bits = int(dtype.lstrip("ui"))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype in SIGNED else (0, (1 << bits) - 1)
    if not low <= number <= high:
        raise InvalidProgram(f"{number} is no {dtype}: use {low} to {high}")
    return str(int(number))


def _float(dtype: str, number: float) -> str:
    assert dtype in FLOATS
    if math.isfinite(number):
        return f"{number:.17e}"
    bits = _NAN[dtype] if math.isnan(number) else _INFINITY[dtype]
    if number < 0:
        bits |= 1 << (_WIDTH[dtype] - 1)
    return f"0x{bits:0{_WIDTH[dtype] // 4}X}"
