"""Dense constants as exact bytes."""

from __future__ import annotations

import math
import re
import struct
from typing import TYPE_CHECKING, cast

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.mlir import context as mlir
from kcache_compiler.spec.graph.element_types import is_integer
from kcache_compiler.spec.graph.nodes import ValueType

if TYPE_CHECKING:
    from torch_mlir import ir

#: element -> (struct code of one part, parts of an element); the layout of buffers, little-endian.
_CODES: dict[str, tuple[str, int]] = {
    "i1": ("B", 1),
    "i8": ("b", 1),
    "i16": ("h", 1),
    "i32": ("i", 1),
    "i64": ("q", 1),
    "ui8": ("B", 1),
    "ui16": ("H", 1),
    "ui32": ("I", 1),
    "ui64": ("Q", 1),
    "f16": ("e", 1),
    "bf16": ("H", 1),
    "f32": ("f", 1),
    "f64": ("d", 1),
    "c64": ("f", 2),
    "c128": ("d", 2),
    "index": ("q", 1),
}
_FLOATS = "efd"

_TOKEN = re.compile(r"true|false|0x[0-9A-Fa-f]+|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DENSE = re.compile(r"dense<(.*)> : [^>]*>*\Z", re.DOTALL)
_RAW = re.compile(r'dense<"0x([0-9A-Fa-f]*)">')
_RESOURCE = re.compile(r"dense_resource<([^>]*)>")


class Constant:
    """``content`` is bytes in hex, or ``=`` and MLIR's literal for element types without a defined layout.

    ``splat``: it is one element that all indices have.
    """

    __slots__ = ("content", "splat")

    def __init__(self, content: str, splat: bool) -> None:
        self.content = content
        self.splat = splat

    @staticmethod
    def scalar(token: str, element: str) -> Constant:
        """Return a splat of an element, given as MLIR's literal."""
        if element not in _CODES:
            return Constant(f"={token}", splat=True)
        code, parts = _CODES[element]
        tokens = _TOKEN.findall(token)
        tokens += ["0"] * (parts - len(tokens))
        return Constant(b"".join(_part(t, element, code) for t in tokens).hex(), splat=True)

    @staticmethod
    def number(value: float, element: str) -> Constant:
        """Return a splat of a number, rounded once to the element type."""
        code, parts = _CODES[element]
        own = _part(repr(value), element, code) if code in _FLOATS or element == "bf16" else b""
        if not own:
            own = (int(value) % (1 << 8 * struct.calcsize(code))).to_bytes(struct.calcsize(code), "little")
        return Constant((own + bytes(len(own)) * (parts - 1)).hex(), splat=True)

    @property
    def size(self) -> int:
        """The number of bytes, or of characters of a literal."""
        return len(self.content) - 1 if self.content.startswith("=") else len(self.content) // 2


def read_constant(operation: ir.Operation, type: ValueType) -> Constant:
    """Read the ``value`` of a constant operation."""
    assert type.dims is not None
    count = math.prod(type.dims)
    fast = _from_buffer(operation, type, count)
    if fast is not None:
        return fast
    text = _literal(operation)
    resource = _RESOURCE.match(text)
    if resource:
        content = _resource_bytes(operation, resource[1])
        _check_resource(content, resource[1], type, count)
        return _of_bytes(content, type.element, count)
    return _from_text(text, type, count)


def is_resource(operation: ir.Operation) -> bool:
    """Return whether the ``value`` of a constant operation is a resource of the module."""
    return str(operation.attributes["value"]).startswith("dense_resource<")


def dense_text(operation: ir.Operation, constant: Constant) -> str:
    """Return MLIR's literal of a constant without a resource."""
    native = mlir.native_ir()
    type = operation.results[0].type
    content = f'"0x{constant.content.upper()}"' if math.prod(cast("ir.ShapedType", type).shape) else ""
    value = f"dense<{content}> : {type}"
    return str(native.Attribute.parse(value, operation.context))


def _from_buffer(operation: ir.Operation, type: ValueType, count: int) -> Constant | None:
    """A constant that the bindings expose as a buffer; None of other constants."""
    if type.element not in _CODES or type.element in ("bf16", "c64", "c128", "i1", "index"):
        return None
    if not hasattr(operation.attributes["value"], "is_splat"):
        return None
    attribute = cast("ir.DenseElementsAttr", operation.attributes["value"])
    if count and attribute.is_splat:
        return Constant.scalar(str(attribute.get_splat_value()).partition(" : ")[0], type.element)
    return _of_bytes(memoryview(cast("bytes", attribute)).tobytes() if count else b"", type.element, count)


def _literal(operation: ir.Operation) -> str:
    try:
        return str(operation.attributes["value"])
    except TypeError:  # the bindings know no complex elements
        plain = operation.clone()
    for name in list(plain.attributes):
        if name != "value":
            del plain.attributes[name]
    text: str = plain.get_asm(print_generic_op_form=True, assume_verified=True)
    start = text.index("value = ") + len("value = ")
    return text[start : text.rindex("}> : " if "}> : " in text else "} : ")]


def _from_text(literal: str, type: ValueType, count: int) -> Constant:
    raw = _RAW.match(literal)
    if raw:
        return _of_bytes(bytes.fromhex(raw[1]), type.element, count)
    match = _DENSE.match(literal)
    if not match:
        raise InvalidProgram(f"cannot read the constant {literal[:200]}")
    if count == 0:
        return _of_bytes(b"", type.element, count)
    if type.element not in _CODES:
        body = match[1]
        return Constant(f"={body}", not body.startswith("["))
    tokens = _TOKEN.findall(match[1])
    code, parts = _CODES[type.element]
    if len(tokens) == parts:
        return Constant(b"".join(_part(t, type.element, code) for t in tokens).hex(), splat=True)
    return _of_bytes(b"".join(_part(t, type.element, code) for t in tokens), type.element, count)


def _part(number: str, element: str, code: str) -> bytes:
    """The bytes of one printed number. MLIR prints floats so that they are read back exactly, and NaNs in
    hex.
    """
    if number in ("true", "false"):
        return b"\1" if number == "true" else b"\0"
    if code in _FLOATS or element == "bf16":
        width = 2 if element == "bf16" else struct.calcsize(code)
        if number.startswith("0x"):
            return int(number, 16).to_bytes(width, "little")
        if element == "bf16":
            return _bfloat16(float(number))
        return _packed(float(number), code)
    value = int(number, 0)
    width = struct.calcsize(code)
    return (value % (1 << 8 * width)).to_bytes(width, "little")


def _packed(value: float, code: str) -> bytes:
    """The nearest float of a struct code; infinity on overflow."""
    try:
        return struct.pack(f"<{code}", value)
    except OverflowError:
        return struct.pack(f"<{code}", math.copysign(math.inf, value))


def _bfloat16(value: float) -> bytes:
    """The nearest bfloat16; exact, as a printed bfloat16 is far from every midpoint."""
    bits = int.from_bytes(struct.pack("<f", value), "little")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to_bytes(2, "little")


def _of_bytes(content: bytes, element: str, count: int) -> Constant:
    """A constant of these bytes, which is a splat if they repeat one element. An empty tensor is a splat of
    ones, so that scalar arithmetic on it does not trap.
    """
    if count == 0:
        return Constant.scalar("1" if is_integer(element) else "1.000000e+00", element)
    width, rest = divmod(len(content), count)
    if rest or not width:
        raise InvalidProgram(f"a constant of {count} elements of {element} has {len(content)} bytes")
    if content == content[:width] * count:
        return Constant(content[:width].hex(), splat=True)
    return Constant(content.hex(), splat=False)


def _check_resource(content: bytes, name: str, type: ValueType, count: int) -> None:
    """Raise if the size of a resource does not fit its type."""
    code, parts = _CODES.get(type.element, ("B" if type.element.startswith("f8") else "", 1))
    if not code:
        raise InvalidProgram(
            f"the resource {name} of a constant has elements of {type.element}: write these as dense<...>"
        )
    expected = count * parts * struct.calcsize(code)
    if len(content) != expected:
        raise InvalidProgram(
            f"the resource {name} has {len(content)} bytes; a constant of {count} elements of {type.element} "
            f"has {expected}"
        )


def _resource_bytes(operation: ir.Operation, name: str) -> bytes:
    """The bytes of a resource, from the text of the module, as the bindings do not expose them. Four bytes of
    alignment precede them.
    """
    top = operation
    while top.parent is not None:
        top = top.parent.operation
    text: str = top.get_asm(assume_verified=True, large_resource_limit=1 << 40)
    section = text[text.rindex("{-#") :] if "{-#" in text else ""
    blob = re.search(rf'(?m)^\s*"?{re.escape(name.strip(chr(34)))}"?: "0x([0-9A-Fa-f]*)"', section)
    if not blob or len(blob[1]) < 8 or len(blob[1]) % 2:
        raise InvalidProgram(f"the resource {name} of a constant is missing")
    return bytes.fromhex(blob[1])[4:]
