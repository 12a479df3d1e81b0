"""What a caller calls a program, read into a format and bytes.

Formats are told apart by content: MLIR bytecode and graphs by their first bytes, ONNX models by their fields,
text by the dialect of its operations. Nothing is parsed here; the service does that, in a worker.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kcache_grpc.client.exported import portable_artifact
from kcache_grpc.client.locations import strip_locations
from kcache_grpc.client.onnx_program import is_model, model_bytes, model_of
from kcache_grpc.client.torch_program import torch_program
from kcache_grpc.errors import ArgumentError, InvalidProgram, KcacheError, NotFound
from kcache_grpc.graph import Graph
from kcache_grpc.model.program import Program, ProgramFormat
from kcache_grpc.runtime.bound import BoundArguments

#: What ``Client`` takes as a program; objects of frameworks are told by their type, which imports none.
ProgramLike = str | bytes | os.PathLike[str] | Any

_BYTECODE = b"ML\xefR"
#: Field 1 of a serialized ``kcache.v1.Graph``, which every library writes first.
_GRAPH = b"\x0a\x0fkcache.graph.v1"
#: An operation's dialect: at the start of a line or behind its results, in quotes in the generic form.
_OPERATION = re.compile(
    rb'(?:^[ \t]*|%[\w$.-]+(?::\d+)?[ \t]*=[ \t]*)"?'
    rb"(stablehlo|chlo|vhlo|linalg|torch|onnx|tensor|arith|math|scf)\.[a-z]",
    re.MULTILINE,
)
_STABLEHLO = frozenset((b"stablehlo", b"chlo", b"vhlo"))
_LATER = {b"onnx": "ONNX dialect (send the model itself, an onnx.ModelProto)"}
_PATH_SUFFIXES = (".kgraph", ".mlir", ".mlirbc", ".bc", ".vhlo", ".onnx", ".pt2", ".pb", ".txt")


@dataclass(frozen=True)
class Source:
    """A program, and the arguments that it brings: of a framework's object its weights."""

    program: Program
    arguments: BoundArguments | None = None


def read_program(program: ProgramLike, format: str | None) -> Program:
    """What ``read_source`` reads, without the arguments that it brings."""
    return read_source(program, format).program


def read_source(program: ProgramLike, format: str | None) -> Source:
    """Format and bytes, locations taken out of text, weights lifted out of objects.

    Raises ``ArgumentError`` for a format or type that this version does not take, ``InvalidProgram`` for
    bytes that cannot be a program, ``NotFound`` for a missing file.
    """
    stated = None if format is None else _stated_format(format)
    lifted = _lifted(program)
    if lifted is not None:
        if stated not in (None, lifted.program.format):
            raise ArgumentError(
                f"this program has the format {lifted.program.format.value!r}, not {format!r}"
            )
        return lifted
    return Source(_plain(_body(program), stated))


def _plain(body: bytes, stated: ProgramFormat | None) -> Program:
    if not body:
        raise InvalidProgram("the program is empty")
    if stated is ProgramFormat.GRAPH or (stated is None and body.startswith(_GRAPH)):
        return Program(ProgramFormat.GRAPH, body)
    if stated is ProgramFormat.ONNX or (stated is None and is_model(body)):
        return Program(ProgramFormat.ONNX, body)
    if body.startswith(_BYTECODE):
        return Program(stated or _bytecode_format(body), body)
    if stated is None:
        stated = _text_format(body)
    return Program(stated, strip_locations(body))


def _stated_format(format: str) -> ProgramFormat:
    try:
        return ProgramFormat(format)
    except ValueError as error:
        names = ", ".join(repr(known.value) for known in ProgramFormat)
        raise ArgumentError(f"unknown format {format!r}; use {names}, or None to tell by content") from error


def _body(program: ProgramLike) -> bytes:
    if isinstance(program, str):
        return _text_body(program)
    if isinstance(program, bytes):
        return program
    if isinstance(program, bytearray):
        return bytes(program)
    if isinstance(program, os.PathLike):
        return _file_body(Path(cast("os.PathLike[str]", program)))
    return _object_body(program)


def _text_body(program: str) -> bytes:
    if "\n" not in program and len(program) < 4096 and _names_file(program):
        raise ArgumentError(
            f"a str is the text of a program, but {program!r} looks like a file name: "
            f"pass pathlib.Path({program!r})"
        )
    try:
        return program.encode()
    except UnicodeEncodeError as error:
        raise InvalidProgram(f"the program's text is not valid Unicode: {error}") from error


def _names_file(text: str) -> bool:
    if not text or "\0" in text:
        return False
    if text.endswith(_PATH_SUFFIXES):
        return True
    try:
        return Path(text).is_file()
    except OSError:
        return False


def _file_body(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"no such file: {path}") from error
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror or error}") from error


def _lifted(program: Any) -> Source | None:
    """A framework's object as a program whose weights are arguments; ``None`` for all else."""
    cls = cast("type[object]", type(program))
    if cls.__name__ == "ExportedProgram" and cls.__module__.partition(".")[0] == "torch":
        body, arguments = torch_program(program)
        return Source(Program(ProgramFormat.TORCH, body), arguments)
    model = model_of(program)
    return None if model is None else Source(Program(ProgramFormat.ONNX, model_bytes(model)))


def _object_body(program: Any) -> bytes:
    if isinstance(program, Graph):
        return program.to_bytes()
    cls = cast("type[object]", type(program))
    package = cls.__module__.partition(".")[0]
    if package == "jax" and cls.__name__ == "Exported":
        return portable_artifact(program)
    if package == "torch" or any(base.__module__ == "torch.nn.modules.module" for base in cls.__mro__):
        raise ArgumentError(
            f"{cls.__module__}.{cls.__qualname__} is no program yet: pass torch.export.export(module, inputs)"
        )
    if package == "onnx":
        raise ArgumentError(f"{package}.{cls.__qualname__} is no program: pass an onnx.ModelProto")
    raise ArgumentError(
        "a program is a str, bytes, a path, a kcache.Graph, an onnx.ModelProto, a "
        "torch.export.ExportedProgram or a jax.export.Exported, "
        f"not {cls.__module__}.{cls.__qualname__}"
    )


def _bytecode_format(body: bytes) -> ProgramFormat:
    """By the dialect names in the string section; StableHLO, unless only another one is there."""
    if b"!torch.vtensor" in body and b"stablehlo" not in body:
        return ProgramFormat.TORCH
    if b"linalg" in body and b"stablehlo" not in body and b"vhlo" not in body:
        return ProgramFormat.LINALG
    return ProgramFormat.STABLEHLO


def _text_format(body: bytes) -> ProgramFormat:
    if b"\0" in body[:4096]:
        raise _unreadable(body)
    families = set[bytes]()
    for match in _OPERATION.finditer(body):
        family: bytes = match[1]
        if family in _STABLEHLO:
            return ProgramFormat.STABLEHLO
        families.add(family)
    if b"torch" in families:
        return ProgramFormat.TORCH
    later = sorted(_LATER[family] for family in families if family in _LATER)
    if later:
        raise ArgumentError(f"programs in the {later[0]} are not taken by this version of kcache")
    return ProgramFormat.LINALG if families else ProgramFormat.STABLEHLO


def _unreadable(body: bytes) -> KcacheError:
    if body.startswith(b"PK\x03\x04"):
        return ArgumentError(
            "a zip archive is no program: of an archive of torch.export pass torch.export.load(path)"
        )
    return InvalidProgram(
        "neither MLIR text nor MLIR bytecode, nor a serialized kcache.Graph or onnx.ModelProto"
    )
