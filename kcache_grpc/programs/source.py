"""What a caller calls a program, read into a format and bytes.

Formats are told apart by content: MLIR bytecode and graphs by their first bytes, ONNX models by their fields,
text by the dialect of its operations. Nothing is parsed here; the service does that, in a worker.
Readers of one format are imported when a program of that format is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kcache_grpc.errors import ArgumentError, InvalidProgram, KcacheError, NotFound
from kcache_grpc.model.program import Program, ProgramFormat
from kcache_grpc.programs.locations import strip_locations
from kcache_grpc.programs.onnx.program import is_model, lifted_model, model_bytes, model_of
from kcache_grpc.programs.origins import Origins

if TYPE_CHECKING:
    from kcache_grpc.programs.onnx.weights import LiftedModel
    from kcache_grpc.runtime.bound_kernel import BoundArguments

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
#: Files of more bytes are mapped instead of read: of a model only the graph is looked at.
_MAPPED_BYTES = 16 << 20
_PATH_SUFFIXES = (".kgraph", ".mlir", ".mlirbc", ".bc", ".vhlo", ".onnx", ".pt2", ".pb", ".txt")


@dataclass(frozen=True)
class Source:
    """A program, and the arguments that it brings: the weights of a framework's object or a large model.

    ``evidence``: programs that its caller says are the same computation at other sizes.
    ``names`` are those that the inputs have in the framework, where the program itself does not keep them.
    """

    program: Program
    arguments: BoundArguments | None = None
    evidence: tuple[Program, ...] = ()
    names: tuple[str, ...] = ()
    #: Where its operations came from, if that is known.
    origins: Origins | None = field(default=None, compare=False)


def read_source(program: ProgramLike, format: str | None) -> Source:
    """Format and bytes, locations taken out of text, weights lifted out of objects.

    Of a list the first program, with the others as its evidence. Raises ``ArgumentError`` for a format or
    type that this version does not take, or for programs that bring other arguments than the first,
    ``InvalidProgram`` for bytes that cannot be a program, ``NotFound`` for a missing file.
    """
    if isinstance(program, Source):
        return program
    if not isinstance(program, (list, tuple)):
        return read_one(program, format)
    programs = list(cast("Iterable[ProgramLike]", program))
    if not programs:
        raise ArgumentError("the list of programs is empty", argument="program")
    first, *others = (read_one(each, format) for each in programs)
    for number, other in enumerate(others, start=2):
        _require_same_arguments(first, other, number)
    return replace(first, evidence=tuple(other.program for other in others))


def _require_same_arguments(first: Source, other: Source, number: int) -> None:
    """Arguments that the programs bring are constants, too: some may be computed from sizes."""
    ours, theirs = first.arguments, other.arguments
    if ours is None and theirs is None:
        return
    differs = "" if ours is not None and theirs is not None else "its arguments are not bound"
    if ours is not None and theirs is not None:
        differs = ours.difference(theirs)
    if differs:
        raise ArgumentError(
            f"program {number} is no evidence for other sizes of the first program: {differs}, and may be "
            "computed from sizes; export the program with dynamic dimensions, or compile each for its own "
            "sizes",
            argument="dynamic",
        )


def read_one(program: ProgramLike, format: str | None) -> Source:
    """What ``read_source`` reads of one program."""
    stated = None if format is None else _stated_format(format)
    lifted = _lifted(program)
    if lifted is not None:
        if stated not in (None, lifted.program.format):
            raise ArgumentError(
                f"this program has the format {lifted.program.format.value!r}, not {format!r}"
            )
        return lifted
    body = _body(program)
    if not body:
        raise InvalidProgram("the program is empty")
    if stated is ProgramFormat.ONNX or (stated is None and body[:4] != _BYTECODE and is_model(body)):
        from kcache_grpc.programs.onnx.weights import lift_weights

        return _onnx(lift_weights(body, _directory(program)))
    content = bytes(body)
    plain = _plain(content, stated)
    if content.startswith(_BYTECODE) and plain.format is ProgramFormat.STABLEHLO:
        from kcache_grpc.programs.text_constants import lift_bytecode

        lifted, arguments = lift_bytecode(content)
        return Source(Program(plain.format, lifted), arguments)
    if content.startswith(_BYTECODE) or plain.format is ProgramFormat.GRAPH:
        return Source(plain)
    name = os.fspath(cast("os.PathLike[str]", program)) if isinstance(program, os.PathLike) else ""
    origins = Origins(lambda: content, name)
    if plain.format not in (ProgramFormat.STABLEHLO, ProgramFormat.LINALG):
        return Source(plain, origins=origins)
    from kcache_grpc.programs.text_constants import lift_constants

    text, arguments = lift_constants(plain.body)
    parsed = plain if text is plain.body else Program(plain.format, text)
    return Source(parsed, arguments, origins=origins)


def _onnx(model: LiftedModel) -> Source:
    return Source(Program(ProgramFormat.ONNX, model.body), model.arguments)


def bound_program(program: ProgramLike, format: str | None, values: Mapping[str, Any] | None) -> ProgramLike:
    """``program``, an ONNX model, with inputs as constants; itself without ``values``.

    Raises ``ArgumentError`` where it is no ONNX model or the values do not fit its inputs.
    """
    if not values:
        return program
    if isinstance(program, (list, tuple)):
        return [bound_program(each, format, values) for each in cast("Iterable[ProgramLike]", program)]
    if format not in (None, ProgramFormat.ONNX.value):
        raise ArgumentError(f"bind= is for ONNX models: a program of format {format!r} has no named inputs")
    from kcache_grpc.programs.onnx.binding import bind_inputs

    model = model_of(program)
    bound = bind_inputs(bytes(_body(program)) if model is None else model_bytes(model), values)
    directory = _directory(program)
    return bound if directory is None else _Edited(bound, directory)


@dataclass(frozen=True)
class _Edited:
    """The bytes of an ONNX model that was read from a file and edited, and where its external data lies."""

    body: bytes
    directory: Path


def _directory(program: ProgramLike) -> Path | None:
    """The directory of a program's file."""
    if isinstance(program, _Edited):
        return program.directory
    return Path(cast("os.PathLike[str]", program)).parent if isinstance(program, os.PathLike) else None


def traced_program(
    program: ProgramLike, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> ProgramLike:
    """``program``, a jitted function of JAX, for example arguments; itself without them.

    Raises ``ArgumentError`` for example arguments of anything else.
    """
    if args is None and kwargs is None:
        return program
    from kcache_grpc.programs.jax.export import traced

    return traced(program, args or (), kwargs or {})


def _plain(body: bytes, stated: ProgramFormat | None) -> Program:
    if stated is ProgramFormat.GRAPH or (stated is None and body.startswith(_GRAPH)):
        return Program(ProgramFormat.GRAPH, body)
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


def _body(program: ProgramLike) -> bytes | memoryview:
    if isinstance(program, str):
        return _text_body(program)
    if isinstance(program, bytes):
        return program
    if isinstance(program, _Edited):
        return program.body
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


def _file_body(path: Path) -> bytes | memoryview:
    """A file's content, which is not read at once where it is large."""
    try:
        if path.stat().st_size <= _MAPPED_BYTES or not path.is_file():
            return path.read_bytes()
        from kcache_grpc.programs.onnx.tensors import map_file

        return map_file(path)
    except FileNotFoundError as error:
        raise NotFound(f"no such file: {path}") from error
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror or error}") from error


def _lifted(program: Any) -> Source | None:
    """A framework's object as a program whose weights are arguments; ``None`` for all else."""
    cls = cast("type[object]", type(program))
    if cls.__name__ == "ExportedProgram" and cls.__module__.partition(".")[0] == "torch":
        from kcache_grpc.programs.torch.export import located_program

        body, arguments, located = located_program(program)
        return Source(Program(ProgramFormat.TORCH, body), arguments, origins=Origins(located, shown=False))
    if cls.__module__.partition(".")[0] == "jax" and cls.__name__ in ("Exported", "Lowered"):
        return _jax(program, cls.__name__)
    model = model_of(program)
    return None if model is None else _onnx(lifted_model(model))


def _jax(program: Any, kind: str) -> Source:
    """A ``jax.export.Exported`` or a ``jax.stages.Lowered``, as ``kind`` says."""
    from kcache_grpc.programs.jax.export import (
        argument_names,
        lifted_artifact,
        located_text,
        lowered_artifact,
    )

    if kind == "Exported":
        body, arguments = lifted_artifact(program)
        names = argument_names(program.mlir_module())
        origins = Origins(lambda: located_text(program), shown=False)
    else:
        body, arguments = lowered_artifact(program)
        names = argument_names(program.as_text(debug_info=True))
        origins = Origins(lambda: program.as_text(debug_info=True).encode(), shown=False)
    return Source(Program(ProgramFormat.STABLEHLO, body), arguments, names=names, origins=origins)


def _object_body(program: Any) -> bytes:
    cls = cast("type[object]", type(program))
    if cls.__module__.startswith("kcache_grpc.graph"):
        return _graph_body(program)
    from kcache_grpc.programs.jax.export import is_jitted

    package = cls.__module__.partition(".")[0]
    if is_jitted(program):
        raise ArgumentError(
            "a jitted function is a program with example arguments: pass args=(...) and kwargs={...} to "
            "compile, or function.lower(...), or jax.export.export(function)(...)"
        )
    if package == "torch" or any(base.__module__ == "torch.nn.modules.module" for base in cls.__mro__):
        raise ArgumentError(
            f"{cls.__module__}.{cls.__qualname__} is no program yet: pass torch.export.export(module, inputs)"
        )
    if package == "onnx":
        raise ArgumentError(f"{package}.{cls.__qualname__} is no program: pass an onnx.ModelProto")
    raise ArgumentError(
        "a program is a str, bytes, a path, a kcache.Graph, an onnx.ModelProto, a "
        "torch.export.ExportedProgram, a jax.export.Exported, a jax.stages.Lowered, or a list of these, "
        f"not {cls.__module__}.{cls.__qualname__}"
    )


def _graph_body(program: Any) -> bytes:
    from kcache_grpc.graph import Graph

    if not isinstance(program, Graph):
        raise ArgumentError(f"a {type(program).__qualname__} is no program: pass the kcache.Graph")
    return program.to_bytes()


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
