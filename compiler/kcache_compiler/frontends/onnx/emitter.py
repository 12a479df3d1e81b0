"""Emits StableHLO as text over values whose element type and sizes are static."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.onnx.proto import data_type, onnx

#: A NumPy array: NumPy's own types are too imprecise for strict type checks.
Array = Any
Dims = tuple[int, ...]

#: Element type -> name of the NumPy dtype with the same bytes; bfloat16 is from ``ml_dtypes``.
NUMPY_DTYPES: dict[str, str] = {
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "ui8": "uint8",
    "ui16": "uint16",
    "ui32": "uint32",
    "ui64": "uint64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
}
#: Narrow element type, which only supports data movement and conversion -> the type of its buffers. A byte of
#: these holds the bits of one float or the value of one integer.
STORAGE_TYPES: dict[str, str] = {
    "f8E4M3FN": "ui8",
    "f8E4M3FNUZ": "ui8",
    "f8E5M2": "ui8",
    "f8E5M2FNUZ": "ui8",
    "f8E8M0FNU": "ui8",
    "f4E2M1FN": "ui8",
    "i4": "i8",
    "i2": "i8",
    "ui4": "ui8",
    "ui2": "ui8",
}
_NARROW_DTYPES = {
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2": "float8_e5m2",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    "f4E2M1FN": "float4_e2m1fn",
    "i4": "int4",
    "i2": "int2",
    "ui4": "uint4",
    "ui2": "uint2",
}
#: Operations that accept narrow elements.
_DATA_MOVEMENT = frozenset(
    {
        *("func.return", "stablehlo.return", "stablehlo.constant", "stablehlo.broadcast_in_dim"),
        *("stablehlo.reshape", "stablehlo.transpose", "stablehlo.slice", "stablehlo.concatenate"),
        *("stablehlo.pad", "stablehlo.reverse", "stablehlo.gather", "stablehlo.select"),
    }
)
ELEMENT_BY_DTYPE = {name: element for element, name in (*NUMPY_DTYPES.items(), *_NARROW_DTYPES.items())}
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
#: Floats of 16 bits, whose sums accumulate in f32.
HALF_PRECISION = frozenset({"f16", "bf16"})
INTEGERS = frozenset(e for e in NUMPY_DTYPES if e.strip("ui").isdigit() and e != "i1")
COMPLEX = frozenset({"complex<f32>", "complex<f64>"})


class Value(NamedTuple):
    """A tensor. ``name`` is its SSA name; it is empty for a constant that has not been emitted.

    ``constant`` holds the elements of a value that does not depend on the inputs: shapes, axes, small
    constants. ``data_dependent_dims`` are the axes whose size depends on data (``data_dependent.py``);
    ``non_negative``: the elements are indices, none of them negative.
    """

    name: str
    element: str
    dims: Dims
    constant: Array | None = None
    data_dependent_dims: tuple[DataDependentDim, ...] = ()
    non_negative: bool = False

    @property
    def type(self) -> str:
        """The MLIR type."""
        return tensor(self.element, self.dims)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)


class DataDependentDim(NamedTuple):
    """An axis of a value, and ``number``, how many of its elements are valid: a value of type ``i64[]``."""

    axis: int
    number: Value


def tensor(element: str, dims: Dims) -> str:
    """Return the MLIR type of a tensor."""
    return f"tensor<{''.join(f'{d}x' for d in dims)}{STORAGE_TYPES.get(element, element)}>"


def constant_value(array: Array) -> Value:
    """Return a constant that is emitted only at its uses."""
    return Value("", ELEMENT_BY_DTYPE[array.dtype.name], array.shape, array)


def i64_array(numbers: Sequence[int]) -> str:
    """Return the attribute of a list of integers."""
    return f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>"


def quoted(text: str) -> str:
    """Return an MLIR string literal."""
    plain = "".join(_escape(c) for c in text)
    return f'"{plain}"'


def _escape(character: str) -> str:
    if character.isprintable() and character not in '"\\':
        return character
    return "".join(f"\\{byte:02X}" for byte in character.encode("utf-8", "replace"))


class Emitter:
    """Collects the operations of one function. ``location`` is the name of the current node."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.location = ""
        #: SSA name of an argument -> its name in the program.
        self.arguments: dict[str, str] = {}
        self._lines: list[str] = []
        self._operations = 0
        self._names = 0

    def text(self) -> str:
        """Return the text of the operations."""
        return "\n".join(self._lines)

    def fresh_name(self) -> str:
        """Return an unused SSA name."""
        self._names += 1
        return f"%{self._names}"

    def emit(
        self, op: str, operands: Sequence[Value], element: str, dims: Dims, properties: str = ""
    ) -> Value:
        """Emit an operation with one result, in generic form."""
        return self.emit_many(op, operands, [(element, dims)], properties)[0]

    def emit_many(
        self,
        op: str,
        operands: Sequence[Value],
        results: Sequence[tuple[str, Dims]],
        properties: str = "",
        regions: Sequence[str] = (),
    ) -> list[Value]:
        """Emit an operation with any number of results; ``regions`` are texts from :meth:`region`."""
        operands = [self.named(operand) for operand in operands]
        if op not in _DATA_MOVEMENT:
            self._reject_narrow([*(o.element for o in operands), *(element for element, _ in results)])
        self._operations += 1
        check("number of operations", self._operations, self.limits.operations)
        for _, dims in results:
            check("rank of a tensor", len(dims), self.limits.rank)
            check("elements of a tensor", math.prod(dims), self.limits.tensor_elements)
        name = self.fresh_name()
        values = [
            Value(name if len(results) == 1 else f"{name}#{i}", element, dims)
            for i, (element, dims) in enumerate(results)
        ]
        result_count = f":{len(results)}" if len(results) > 1 else ""
        assignment = f"{name}{result_count} = " if results else ""
        properties_text = f" <{{{properties}}}>" if properties else ""
        regions_text = f" ({', '.join(regions)})" if regions else ""
        operand_types = ", ".join(o.type for o in operands)
        result_types = ", ".join(tensor(e, d) for e, d in results)
        location = f" loc({quoted(self.location)})" if self.location else ""
        self._lines.append(
            f'{assignment}"{op}"({", ".join(o.name for o in operands)}){properties_text}{regions_text} '
            f": ({operand_types}) -> ({result_types}){location}"
        )
        return values

    def _reject_narrow(self, elements: Sequence[str]) -> None:
        for element in elements:
            if element in STORAGE_TYPES:
                reason = "its elements support data movement and conversion only: cast them first"
                raise UnsupportedOp(f"onnx.TensorProto of {element}", reason, self.location)

    def named(self, value: Value) -> Value:
        """Return the value with an SSA name; a constant is emitted, once per use."""
        if value.name:
            return value
        assert value.constant is not None
        return self.constant(value.constant, value.element)._replace(constant=value.constant)

    def constant(self, array: Array, element: str) -> Value:
        """Emit a constant with these elements."""
        type = tensor(element, array.shape)
        return self.emit("stablehlo.constant", [], element, array.shape, f"value = {_dense(array)} : {type}")

    def full(self, number: complex, element: str, dims: Dims = ()) -> Value:
        """Emit a constant filled with ``number``."""
        literal = _dense(np.asarray(number).astype(_dtype(element)))
        return self.emit(
            "stablehlo.constant", [], element, dims, f"value = {literal} : {tensor(element, dims)}"
        )

    def region(self, parameters: Sequence[Value], body: Callable[[], Sequence[Value]]) -> str:
        """Return the text of a region: the operations of ``body``, and a return of its values."""
        enclosing, self._lines = self._lines, []
        try:
            results = [self.named(value) for value in body()]
            self.emit_many("stablehlo.return", results, [])
            body_text = self.text()
        finally:
            self._lines = enclosing
        parameter_list = ", ".join(f"{p.name}: {p.type}" for p in parameters)
        return f"{{\n^bb0({parameter_list}):\n{body_text}\n}}" if parameters else f"{{\n{body_text}\n}}"

    def parameter(self, element: str, dims: Dims) -> Value:
        """Return a new value for a parameter of a region."""
        return Value(self.fresh_name(), element, dims)

    @contextmanager
    def at(self, location: str) -> Generator[None]:
        """Set the location of the operations that are emitted in this context."""
        enclosing, self.location = self.location, location
        try:
            yield
        finally:
            self.location = enclosing


def _dtype(element: str) -> Any:
    return onnx().helper.tensor_dtype_to_np_dtype(data_type(element))


def astype(array: Array, element: str) -> Array:
    """Return the elements converted with NumPy's semantics."""
    return array.astype(_dtype(element))


def _dense(array: Array) -> str:
    if array.dtype == np.bool_:
        flat = ["true" if bit else "false" for bit in array.reshape(-1)]
        if len(set(flat)) == 1:
            return f"dense<{flat[0]}>"
        return f"dense<{_nested_list(flat, array.shape)}>" if flat else "dense<>"
    return f'dense<"0x{buffer_bytes(array).hex().upper()}">' if array.size else "dense<>"


def buffer_bytes(array: Array) -> bytes:
    """Return the elements in the format of buffers: little-endian, row-major."""
    array = np.ascontiguousarray(array)
    storage = STORAGE_TYPES.get(ELEMENT_BY_DTYPE.get(array.dtype.name, ""))
    if storage:
        is_float = array.dtype.name.startswith("float")
        array = array.view(NUMPY_DTYPES[storage]) if is_float else array.astype(NUMPY_DTYPES[storage])
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes()


def _nested_list(flat: list[str], dims: Dims) -> str:
    if not dims:
        return flat[0]
    step = len(flat) // dims[0]
    rows = [_nested_list(flat[i * step : (i + 1) * step], dims[1:]) for i in range(dims[0])]
    return f"[{', '.join(rows)}]"
