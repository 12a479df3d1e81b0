"""StableHLO as text, one operation at a time, over values whose element and sizes are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.onnx.proto import data_type, onnx

#: A NumPy array: its own types say too little for strict checks.
Array = Any
Dims = tuple[int, ...]

#: element -> name of the NumPy type with the same bytes; bfloat16 is ``ml_dtypes``'s.
NUMPY: dict[str, str] = {
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
#: Elements that are moved and converted only, and those that buffers have in their place: of floats the bits,
#: of integers the numbers, one in each byte.
CARRIERS: dict[str, str] = {
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
_NARROW = {
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
#: What narrow elements go through as they are.
_MOVES = frozenset(
    {
        *("func.return", "stablehlo.return", "stablehlo.constant", "stablehlo.broadcast_in_dim"),
        *("stablehlo.reshape", "stablehlo.transpose", "stablehlo.slice", "stablehlo.concatenate"),
        *("stablehlo.pad", "stablehlo.reverse", "stablehlo.gather", "stablehlo.select"),
    }
)
ELEMENTS = {name: element for element, name in (*NUMPY.items(), *_NARROW.items())}
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
#: Floats of 16 bits: what sums many of them does so in f32.
HALVES = frozenset({"f16", "bf16"})
INTEGERS = frozenset(e for e in NUMPY if e.strip("ui").isdigit() and e != "i1")
COMPLEX = frozenset({"complex<f32>", "complex<f64>"})


class Value(NamedTuple):
    """A tensor: its SSA name, or none yet where it is only ``known``.

    ``known`` holds the elements of what does not depend on the inputs: shapes, axes, small constants.
    ``counted`` are the axes along which data says how many elements there are (``counted.py``);
    ``from_front`` says of indices that none is below 0.
    """

    name: str
    element: str
    dims: Dims
    known: Array | None = None
    counted: tuple[Counted, ...] = ()
    from_front: bool = False

    @property
    def type(self) -> str:
        """The MLIR type."""
        return tensor(self.element, self.dims)

    @property
    def rank(self) -> int:
        """The number of dims."""
        return len(self.dims)


class Counted(NamedTuple):
    """An axis of a value, and how many of its elements are there: a value of type ``i64[]``."""

    axis: int
    number: Value


def tensor(element: str, dims: Dims) -> str:
    """Return the MLIR type of a tensor."""
    return f"tensor<{''.join(f'{d}x' for d in dims)}{CARRIERS.get(element, element)}>"


def known(array: Array) -> Value:
    """Return a value that is only known; it becomes a constant where something reads it."""
    return Value("", ELEMENTS[array.dtype.name], array.shape, array)


def i64s(numbers: Sequence[int]) -> str:
    """Return an attribute of integers."""
    return f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>"


def quoted(text: str) -> str:
    """Return a string literal of MLIR."""
    plain = "".join(_escaped(c) for c in text)
    return f'"{plain}"'


def _escaped(character: str) -> str:
    if character.isprintable() and character not in '"\\':
        return character
    return "".join(f"\\{byte:02X}" for byte in character.encode("utf-8", "replace"))


class Emitter:
    """Collects the operations of one function. ``location`` names the node that they come from."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.location = ""
        #: SSA names of the program's arguments -> their names in the program.
        self.arguments: dict[str, str] = {}
        self._lines: list[str] = []
        self._operations = 0
        self._names = 0

    def text(self) -> str:
        """Return what was emitted."""
        return "\n".join(self._lines)

    def fresh(self) -> str:
        """Return a new SSA name."""
        self._names += 1
        return f"%{self._names}"

    def emit(
        self, op: str, operands: Sequence[Value], element: str, dims: Dims, properties: str = ""
    ) -> Value:
        """Emit one operation of one result in generic form."""
        return self.emit_many(op, operands, [(element, dims)], properties)[0]

    def emit_many(
        self,
        op: str,
        operands: Sequence[Value],
        results: Sequence[tuple[str, Dims]],
        properties: str = "",
        regions: Sequence[str] = (),
    ) -> list[Value]:
        """Emit one operation; ``regions`` are texts of :meth:`region`."""
        operands = [self.named(operand) for operand in operands]
        if op not in _MOVES:
            self._refuse_narrow([*(o.element for o in operands), *(element for element, _ in results)])
        self._operations += 1
        check("number of operations", self._operations, self.limits.operations)
        for _, dims in results:
            check("rank of a tensor", len(dims), self.limits.rank)
            check("elements of a tensor", math.prod(dims), self.limits.tensor_elements)
        name = self.fresh()
        values = [
            Value(name if len(results) == 1 else f"{name}#{i}", element, dims)
            for i, (element, dims) in enumerate(results)
        ]
        count = f":{len(results)}" if len(results) > 1 else ""
        bound = f"{name}{count} = " if results else ""
        inherent = f" <{{{properties}}}>" if properties else ""
        nested = f" ({', '.join(regions)})" if regions else ""
        types = ", ".join(o.type for o in operands)
        given = ", ".join(tensor(e, d) for e, d in results)
        where = f" loc({quoted(self.location)})" if self.location else ""
        self._lines.append(
            f'{bound}"{op}"({", ".join(o.name for o in operands)}){inherent}{nested} '
            f": ({types}) -> ({given}){where}"
        )
        return values

    def _refuse_narrow(self, elements: Sequence[str]) -> None:
        for element in elements:
            if element in CARRIERS:
                reason = "its elements are moved and converted, and nothing else: cast them first"
                raise UnsupportedOp(f"onnx.TensorProto of {element}", reason, self.location)

    def named(self, value: Value) -> Value:
        """Return the value with a name: what is only known is written as a constant, once per use."""
        if value.name:
            return value
        assert value.known is not None
        return self.constant(value.known, value.element)._replace(known=value.known)

    def constant(self, array: Array, element: str) -> Value:
        """Emit a constant with these elements."""
        type = tensor(element, array.shape)
        return self.emit("stablehlo.constant", [], element, array.shape, f"value = {_dense(array)} : {type}")

    def full(self, number: complex, element: str, dims: Dims = ()) -> Value:
        """Emit a constant that is ``number`` everywhere."""
        literal = _dense(np.asarray(number).astype(_dtype(element)))
        return self.emit(
            "stablehlo.constant", [], element, dims, f"value = {literal} : {tensor(element, dims)}"
        )

    def region(self, parameters: Sequence[Value], body: Callable[[], Sequence[Value]]) -> str:
        """Return the text of a region: what ``body`` emits, ending with a return of what it returns."""
        outer, self._lines = self._lines, []
        try:
            results = [self.named(value) for value in body()]
            self.emit_many("stablehlo.return", results, [])
            inner = self.text()
        finally:
            self._lines = outer
        head = ", ".join(f"{p.name}: {p.type}" for p in parameters)
        return f"{{\n^bb0({head}):\n{inner}\n}}" if parameters else f"{{\n{inner}\n}}"

    def parameter(self, element: str, dims: Dims) -> Value:
        """Return a value for a region to name as its parameter."""
        return Value(self.fresh(), element, dims)

    @contextmanager
    def at(self, location: str) -> Generator[None]:
        """Give what is emitted inside this location."""
        outer, self.location = self.location, location
        try:
            yield
        finally:
            self.location = outer


def _dtype(element: str) -> Any:
    return onnx().helper.tensor_dtype_to_np_dtype(data_type(element))


def astype(array: Array, element: str) -> Array:
    """Return the elements converted to ``element``, as NumPy does."""
    return array.astype(_dtype(element))


def _dense(array: Array) -> str:
    if array.dtype == np.bool_:
        flat = ["true" if bit else "false" for bit in array.reshape(-1)]
        if len(set(flat)) == 1:
            return f"dense<{flat[0]}>"
        return f"dense<{_nested(flat, array.shape)}>" if flat else "dense<>"
    return f'dense<"0x{content_of(array).hex().upper()}">' if array.size else "dense<>"


def content_of(array: Array) -> bytes:
    """Return the elements as buffers have them: little-endian, row-major."""
    array = np.ascontiguousarray(array)
    carrier = CARRIERS.get(ELEMENTS.get(array.dtype.name, ""))
    if carrier:
        bits = array.dtype.name.startswith("float")
        array = array.view(NUMPY[carrier]) if bits else array.astype(NUMPY[carrier])
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes()


def _nested(flat: list[str], dims: Dims) -> str:
    if not dims:
        return flat[0]
    step = len(flat) // dims[0]
    rows = [_nested(flat[i * step : (i + 1) * step], dims[1:]) for i in range(dims[0])]
    return f"[{', '.join(rows)}]"
