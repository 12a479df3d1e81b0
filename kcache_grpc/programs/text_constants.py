"""Takes large constants out of StableHLO and linalg programs, which are small without them.

In place of each constant stands a call, or a resource without content, that the compiler makes an argument of
(``kcache_compiler/frontends/bound_arguments.py``); the client binds the arguments to the values. Constants of
one element, repeated, and those up to 1,024 bytes stay: they decide shapes and fusion.
"""

from __future__ import annotations

import binascii
import math
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from kcache_grpc.programs.locations import strip_locations
from kcache_grpc.programs.onnx.protobuf_fields import Array
from kcache_grpc.programs.onnx.weights import LIFT_BYTES
from kcache_grpc.runtime.bound_kernel import BoundArguments
from kcache_grpc.runtime.dtypes import numpy_dtypes

#: Constants of at most this many bytes are part of a spec by value.
_INLINE_BYTES = 1024

_NAME = rb'(?:[A-Za-z_$][\w$.-]*|"[^"\n]*")'
_VALUE = (
    rb'(?:dense<"0x(?P<hex>[0-9A-Fa-f]*)">|dense<(?P<list>\[[-+0-9eE.,\[\]\s]*\])>'
    rb"|dense_resource<(?P<resource>" + _NAME + rb")>)[ \t]*:[ \t]*"
    rb"(?P<type>tensor<(?P<dims>(?:\d+x)+)(?P<element>complex<f32>|complex<f64>|\w+)>)"
)
_CONSTANT = re.compile(
    rb"(?P<dialect>stablehlo|arith)\.constant[ \t]+" + _VALUE
    + rb'|"(?P<generic_dialect>stablehlo|arith)\.constant"\(\)[ \t]*<?\{[ \t]*value[ \t]*=[ \t]*'
    + re.sub(rb"\?P<(\w+)>", rb"?P<generic_\1>", _VALUE)
    + rb"[ \t]*\}>?[ \t]*:[ \t]*\([ \t]*\)[ \t]*->[ \t]*tensor<[^\n>]*>+"
)  # fmt: skip
_RESOURCE = re.compile(rb"(?P<name>" + _NAME + rb')[ \t]*:[ \t]*"0x(?P<hex>[0-9A-Fa-f]*)"[ \t]*,?')

#: MLIR's elements -> those of kernels' arguments, where their names differ.
_ELEMENTS = {"complex<f32>": "c64", "complex<f64>": "c128"}
_FLOATS = ("f16", "f32", "f64")
_NUMBERS = (*_FLOATS, "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
#: MLIR bytecode (magic, format version) whose producer is StableHLO's portable form.
PORTABLE = re.compile(rb"ML\xefR.StableHLO_v(\d+\.\d+\.\d+)\0", re.DOTALL)
_PACKAGES = ("torch_mlir", "jax")
_SECONDS = 120


def lift_constants(text: bytes) -> tuple[bytes, BoundArguments | None]:
    """Take the large constants out of a program that has more than ``LIFT_BYTES`` of them.

    Returns the program, and the values in the order of the arguments behind its own; text without them comes
    back as it is.
    """
    if len(text) <= LIFT_BYTES:
        return text, None
    lifter = _Lifter(text)
    lifted = lifter.run()
    if lifter.bytes <= LIFT_BYTES:
        return text, None
    arguments = BoundArguments((), tuple(lifter.values)) if lifter.values else None
    return lifted, arguments


class _Lifter:
    """Replaces large constants of a program's text, and collects their values in order."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.view = memoryview(text)
        self.values: list[Array] = []
        #: Bytes of what was taken out.
        self.bytes = 0
        self.resources = {match["name"]: match for match in self._section()}
        #: Resource -> constants of it that were taken out.
        self.taken: dict[bytes, int] = {}

    def _section(self) -> list[re.Match[bytes]]:
        start = self.text.rfind(b"{-#")
        return [] if start < 0 else list(_RESOURCE.finditer(self.text, start))

    def run(self) -> bytes:
        pieces: list[bytes | memoryview] = []
        end = 0
        for match in _CONSTANT.finditer(self.text):
            line = self.text.rfind(b"\n", 0, match.start()) + 1
            if b"//" in self.view[line : match.start()].tobytes():
                continue
            written = self._written(match)
            if written is not None:
                pieces += [self.view[end : match.start()], written]
                end = match.end()
        gone = [
            match for name, match in self.resources.items() if self.taken.get(name, 0) == self._uses(name) > 0
        ]
        for match in sorted(gone, key=lambda match: match.start()):
            pieces.append(self.view[end : match.start()])
            end = match.end()
        return b"".join([*pieces, self.view[end:]])

    def _uses(self, name: bytes) -> int:
        return self.text.count(b"dense_resource<" + name + b">")

    def _written(self, match: re.Match[bytes]) -> bytes | None:
        """What stands in place of a constant; ``None``: it stays."""
        generic = "" if match["type"] is not None else "generic_"
        element = match[generic + "element"].decode()
        dims = tuple(int(size) for size in match[generic + "dims"].split(b"x")[:-1])
        name = match[generic + "resource"]
        try:
            array = self._array(match, generic, _ELEMENTS.get(element, element), math.prod(dims))
        except (ValueError, OverflowError):  # the compiler says what is wrong with it
            return None
        if array is None or array.nbytes <= _INLINE_BYTES:
            return None
        type, dialect = match[generic + "type"], match[generic + "dialect"]
        content: Array = array.reshape(-1).view(np.uint8).reshape(array.size, -1)
        if (content == content[0]).all():
            splat = str(bool(content[0])).lower() if element == "i1" else f'"0x{content[0].tobytes().hex()}"'
            self._take(name, array)
            return _constant(generic, dialect, f"dense<{splat}> : ".encode() + type, type)
        self._take(name, array)
        self.values.append(array.reshape(dims))
        number = str(len(self.values) - 1).encode()
        return _argument(generic, dialect, number, type)

    def _take(self, name: bytes | None, array: Array) -> None:
        self.bytes += array.nbytes
        if name is not None:
            self.taken[name] = self.taken.get(name, 0) + 1

    def _array(self, match: re.Match[bytes], generic: str, element: str, count: int) -> Array | None:
        """The elements, flat; ``None`` for elements and literals that are not read here."""
        dtype = numpy_dtypes().get(element)
        if dtype is None or (element.startswith(("i", "ui")) and element not in (*_NUMBERS, "i1")):
            return None
        if (literal := match[generic + "list"]) is not None:
            return _numbers(literal, element, count) if element in _NUMBERS else None
        if match[generic + "hex"] is not None:
            content = binascii.unhexlify(self.view[slice(*match.span(generic + "hex"))])
        else:
            blob = self.resources.get(match[generic + "resource"])
            if blob is None:
                return None
            content = binascii.unhexlify(self.view[slice(*blob.span("hex"))])[4:]
        if element == "i1":
            return _booleans(content, count)
        array: Array = np.frombuffer(content, dtype)
        return array if array.size == count else None


def _booleans(content: bytes, count: int) -> Array | None:
    """Elements of one byte, or of one bit."""
    if len(content) == count:
        return np.frombuffer(content, np.uint8) != 0
    if len(content) != -(-count // 8):
        return None
    return np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")[:count].astype(bool)


def _numbers(literal: bytes, element: str, count: int) -> Array | None:
    """Elements that are listed as numbers: MLIR reads floats as f64, and rounds them to the element."""
    tokens = literal.translate(None, b"[] \t\r\n").split(b",")
    if len(tokens) != count:
        return None
    read: Any = float if element in _FLOATS else int
    values = [read(token) for token in tokens]
    with np.errstate(over="ignore"):
        array: Array = np.array(values, "float64" if element in _FLOATS else object)
        return array.astype(numpy_dtypes()[element])


def _argument(generic: str, dialect: bytes, number: bytes, type: bytes) -> bytes:
    if dialect == b"arith":
        return _constant(generic, dialect, b"dense_resource<kcache.argument." + number + b"> : " + type, type)
    body = b'call_target_name = "kcache.argument", backend_config = "' + number + b'"'
    if generic:
        return b'"stablehlo.custom_call"() {' + body + b"} : () -> " + type
    return b'stablehlo.custom_call @kcache.argument() {backend_config = "' + number + b'"} : () -> ' + type


def _constant(generic: str, dialect: bytes, value: bytes, type: bytes) -> bytes:
    if generic:
        return b'"' + dialect + b'.constant"() {value = ' + value + b"} : () -> " + type
    return dialect + b".constant " + value


def lift_bytecode(body: bytes) -> tuple[bytes, BoundArguments | None]:
    """Take the large constants out of bytecode, as ``lift_constants`` does of text.

    The same bytes come back where no MLIR is installed here, or where it cannot read them: the service says
    what is wrong with them.
    """
    if len(body) <= LIFT_BYTES or not any(find_spec(package) for package in _PACKAGES):
        return body, None
    text = _converted("text", body)
    if text is None:
        return body, None
    lifted, arguments = lift_constants(text)
    if lifted is text:
        return body, None
    version = PORTABLE.match(body)
    program = strip_locations(lifted)
    if version is not None:
        artifact = _converted(version[1].decode(), program)
        if artifact is None:
            return body, None
        program = artifact
    return program, arguments


def _converted(to: str, content: bytes) -> bytes | None:
    command = [sys.executable, "-m", "kcache_grpc.programs.text_constants", to]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _main(to: str) -> None:
    """Read a program from standard input; write it as text, or as an artifact of a version."""
    content = sys.stdin.buffer.read()
    for package in _PACKAGES:
        if find_spec(package) is None:
            continue
        try:
            written = written_by(package, to, content)
        except Exception:  # noqa: BLE001, S112  (code of other projects: the next one may be able to)
            continue
        sys.stdout.buffer.write(written)
        return
    sys.exit("no MLIR here reads the program")


def written_by(package: str, to: str, content: bytes) -> bytes:
    """Return a program as text, or text as an artifact of a version; raises what the package raises."""
    context, ir, dialect = _dialects(package)
    with context:
        if to != "text":
            return bytes(dialect.serialize_portable_artifact_str(content.decode(), to))
        if PORTABLE.match(content) is not None:
            return str(dialect.deserialize_portable_artifact(context, content)).encode()
        return str(ir.Module.parse(content, context)).encode()


def _dialects(package: str) -> tuple[Any, Any, Any]:
    """A context that knows StableHLO, and the bindings of a package."""
    if package == "jax":
        context: Any = import_module("jax.interpreters.mlir").make_ir_context()
        return context, import_module("jaxlib.mlir.ir"), import_module("jaxlib.mlir.dialects.stablehlo")
    ir: Any = import_module("torch_mlir.ir")
    dialect: Any = import_module("torch_mlir._mlir_libs._stablehlo")
    context = ir.Context()
    dialect.register_dialect(context)
    context.load_all_available_dialects()
    return context, ir, dialect


if __name__ == "__main__":
    _main(sys.argv[1])
