"""Child process that evaluates StableHLO modules with the reference interpreter.

The interpreter ends the process on what it does not support, so it never runs in the test's own.
Frames on stdin and stdout: u32 little-endian length of a JSON header, the header, then the blobs whose
lengths the header lists under ``blobs``. Results travel as raw little-endian bytes.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

#: Float type -> integer type of the same width.
_BITS = {"f16": "ui16", "bf16": "ui16", "f32": "ui32", "f64": "ui64"}
#: Elements of 8 bits and fewer, which the bindings cannot carry: floats of 6 and integers go as numbers.
_SMALL = re.compile(r"tensor<(?:\d+x)*(u?i[24]|f[468]E\w+)>")


def main() -> None:
    # The interpreter may print: keep the protocol on a descriptor of its own.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while header := _read_header(sys.stdin.buffer):
        blobs = [sys.stdin.buffer.read(size) for size in header["blobs"]]
        try:
            results = _evaluate(header["module"], header["types"], blobs)
            reply: dict[str, Any] = {"types": [name for name, _ in results]}
        except Exception as error:
            results, reply = [], {"error": f"{type(error).__name__}: {error}"}
        _write_frame(replies, reply, [data for _, data in results])


def _evaluate(text: str, types: list[str], blobs: list[bytes]) -> list[tuple[str, bytes]]:
    from torch_mlir import ir, passmanager
    from torch_mlir._mlir_libs import _stablehlo  # type: ignore[attr-defined]
    from torch_mlir.dialects import torch

    context = ir.Context()
    _stablehlo.register_dialect(context)
    context.load_all_available_dialects()
    _stablehlo.register_stablehlo_passes()
    torch.register_dialect(context)
    with context, ir.Location.unknown():
        # The only way to have the CHLO dialect loaded is a pass that may create its ops.
        loader = passmanager.PassManager.parse("builtin.module(func.func(convert-torch-to-stablehlo))")
        loader.run(ir.Module.create().operation)
        module = ir.Module.parse(text)
        passes = "builtin.module(func.func(chlo-legalize-to-stablehlo),inline)"
        passmanager.PassManager.parse(passes).run(module.operation)
        text, results = _wrapped(ir, module)
        arguments = [
            value for type, blob in zip(types, blobs, strict=True) for value in _values(ir, type, blob)
        ]
        values = iter(_stablehlo.eval_module(ir.Module.parse(text), arguments))
        return [(type, _coded(type, _bytes(values, "complex" in type))) for type in results]


def _values(ir: Any, type: str, blob: bytes) -> list[Any]:
    """The bindings cannot carry complex attributes: a complex argument arrives as two."""
    if "complex" not in type:
        return [_attribute(ir, type, blob)]
    half = _half(type)
    pairs = np.frombuffer(blob, np.uint32 if "f32" in half else np.uint64).reshape(-1, 2)
    return [_attribute(ir, half, pairs[:, part].tobytes()) for part in (0, 1)]


def _wrapped(ir: Any, module: Any) -> tuple[str, list[str]]:
    """Text with a ``main`` around the program that takes halves and gives bits; the result types."""
    program = next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")
    function = ir.FunctionType(program.attributes["function_type"].value)
    inputs, results = [str(type) for type in function.inputs], [str(type) for type in function.results]
    program.attributes["sym_name"] = ir.StringAttr.get("program")
    lines: list[str] = []
    arguments = [_joined(lines, index, type) for index, type in enumerate(inputs)]
    names = [f"%r{index}" for index in range(len(results))]
    call = f"func.call @program({', '.join(name for name, _ in arguments)})"
    lines.append(f"{', '.join(names)} = {call} : ({', '.join(inputs)}) -> ({', '.join(results)})")
    returned = [part for name, type in zip(names, results, strict=True) for part in _split(lines, name, type)]
    taken = ", ".join(f"{name}: {type}" for _, parts in arguments for name, type in parts)
    types = ", ".join(type for _, type in returned)
    lines.append(f"func.return {', '.join(name for name, _ in returned)} : {types}")
    body = "\n".join(lines)
    text = str(module).rstrip()
    return f"{text[: text.rindex('}')]}func.func @main({taken}) -> ({types}) {{\n{body}\n}}\n}}", results


def _joined(lines: list[str], index: int, type: str) -> tuple[str, list[tuple[str, str]]]:
    if "complex" not in type:
        return f"%a{index}", [(f"%a{index}", type)]
    half = _half(type)
    lines.append(f"%a{index} = stablehlo.complex %a{index}re, %a{index}im : {type}")
    return f"%a{index}", [(f"%a{index}re", half), (f"%a{index}im", half)]


def _split(lines: list[str], name: str, type: str) -> list[tuple[str, str]]:
    if "complex" not in type:
        return [_bits(lines, name, type)]
    half = _half(type)
    lines += [f"{name}{op} = stablehlo.{op} {name} : ({type}) -> {half}" for op in ("real", "imag")]
    return [_bits(lines, f"{name}{op}", half) for op in ("real", "imag")]


def _bits(lines: list[str], name: str, type: str) -> tuple[str, str]:
    element = re.sub(r"tensor<(?:\d+x)*(\w+)>", r"\1", type)
    if _SMALL.fullmatch(type):
        return _small_bits(lines, name, type, element)
    if element not in _BITS:
        return name, type
    target = type.replace(element, _BITS[element])
    lines.append(f"{name}bits = stablehlo.bitcast_convert {name} : ({type}) -> {target}")
    return f"{name}bits", target


def _small_bits(lines: list[str], name: str, type: str, element: str) -> tuple[str, str]:
    """Codes in bytes; of floats of 6 bits, which no integer has, f32."""
    if element.startswith("f6"):
        target = type.replace(element, "f32")
        lines.append(f"{name}wide = stablehlo.convert {name} : ({type}) -> {target}")
        return f"{name}wide", target
    if element.startswith("f8"):
        target = type.replace(element, "ui8")
        lines.append(f"{name}bits = stablehlo.bitcast_convert {name} : ({type}) -> {target}")
        return f"{name}bits", target
    if element.startswith("f4"):
        short = type.replace(element, "ui4")
        lines.append(f"{name}short = stablehlo.bitcast_convert {name} : ({type}) -> {short}")
        name, type, element = f"{name}short", short, "ui4"
    target = type.replace(element, "ui8" if element.startswith("u") else "i8")
    lines.append(f"{name}wide = stablehlo.convert {name} : ({type}) -> {target}")
    return f"{name}wide", target


def _coded(type: str, data: bytes) -> bytes:
    """What the interpreter gave for a small type as its codes."""
    match = _SMALL.fullmatch(type)
    if match is None:
        return data
    element = match[1]
    if element.startswith("f6"):
        import ml_dtypes

        code = {"f6E2M3FN": ml_dtypes.float6_e2m3fn, "f6E3M2FN": ml_dtypes.float6_e3m2fn}[element]
        return np.frombuffer(data, np.float32).astype(code).tobytes()
    if not element.endswith(("i2", "i4")):
        return data
    return (np.frombuffer(data, np.uint8) & (3 if element.endswith("2") else 15)).tobytes()


def _half(type: str) -> str:
    return re.sub(r"complex<(\w+)>", r"\1", type)


def _attribute(ir: Any, type: str, blob: bytes) -> Any:
    """A dense attribute of a tensor type from raw bytes; i1 is one byte a value."""
    if "xi1>" in type or type == "tensor<i1>":
        values = np.frombuffer(blob, np.uint8) != 0
        if values.size == 0:
            return ir.Attribute.parse(f"dense<> : {type}")
        inner = ",".join("true" if value else "false" for value in values)
        flat = ir.Attribute.parse(f"dense<[{inner}]> : tensor<{values.size}xi1>")
        return flat if type == f"tensor<{values.size}xi1>" else _reshaped(ir, flat, type)
    return ir.Attribute.parse(f'dense<"0x{blob.hex()}"> : {type}' if blob else f"dense<> : {type}")


def _reshaped(ir: Any, flat: Any, type: str) -> Any:
    from torch_mlir._mlir_libs import _stablehlo  # type: ignore[attr-defined]

    text = (
        f"func.func @main(%a: {flat.type}) -> {type} {{ %0 = stablehlo.reshape %a : ({flat.type}) -> {type}\n"
        f" return %0 : {type} }}"
    )
    return _stablehlo.eval_module(ir.Module.parse(text), [flat])[0]


def _bytes(values: Iterator[Any], is_complex: bool) -> bytes:
    array = np.array(next(values))
    if is_complex:
        return np.stack([array, np.array(next(values))], -1).tobytes()
    return (array.astype(np.uint8) if array.dtype == np.bool_ else array).tobytes()


def _read_header(stream: BinaryIO) -> dict[str, Any] | None:
    size = stream.read(4)
    return json.loads(stream.read(struct.unpack("<I", size)[0])) if len(size) == 4 else None


def _write_frame(stream: BinaryIO, header: dict[str, Any], blobs: list[bytes]) -> None:
    data = json.dumps({**header, "blobs": [len(blob) for blob in blobs]}).encode()
    stream.write(struct.pack("<I", len(data)) + data + b"".join(blobs))
    stream.flush()


if __name__ == "__main__":
    main()
