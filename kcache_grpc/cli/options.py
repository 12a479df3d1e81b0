"""Options that several commands share, and the client that they describe."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcache_grpc.errors import ArgumentError, NotFound
from kcache_grpc.model.gpu.target import GPU_TARGETS
from kcache_grpc.model.options import NUMERICS
from kcache_grpc.model.target import CPU_NAMES, CPU_TARGETS

if TYPE_CHECKING:
    from kcache_grpc import Client, Dim, Options

_PLACE = re.compile(r"(?P<arg>[0-9]{1,9})[.](?P<axis>[0-9]{1,9})")
_BOUND = re.compile(r"(?P<name>min|max|multiple_of)=(?P<size>[0-9]{1,18})")
_DYNAMIC: Mapping[str, bool | Literal["auto", "assume"]] = {
    "no": False,
    "yes": True,
    "auto": "auto",
    "assume": "assume",
}


def targets() -> list[str]:
    """For shell completion."""
    return ["host", *CPU_TARGETS, *CPU_NAMES, *GPU_TARGETS]


def numerics_classes() -> list[str]:
    """For shell completion."""
    return list(NUMERICS)


def formats() -> list[str]:
    """For shell completion."""
    return ["stablehlo", "linalg", "torch", "onnx", "graph"]


ProgramFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="Program: MLIR text or bytecode, or a graph; - reads standard input."
    ),
]
OptionalProgramFile = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE", help="Program: MLIR text or bytecode, or a graph; - reads standard input."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        help="stablehlo, linalg, torch, onnx or graph; without it the content decides.",
        autocompletion=formats,
    ),
]
TargetName = Annotated[
    str,
    typer.Option(
        "--target", help="host, or a CPU or GPU by name, such as x86-64-v3 or sm_90.", autocompletion=targets
    ),
]
Numerics = Annotated[str, typer.Option(help="strict, default or fast.", autocompletion=numerics_classes)]
Bound = Annotated[
    list[int] | None,
    typer.Option(
        metavar="INDEX",
        help="An input, from 0, whose value kcache_prepare takes instead of kcache_run; may be repeated.",
    ),
]
Schedule = Annotated[
    str,
    typer.Option(
        metavar="CHOICES", help='Schedule choices, such as grain:4, or "recorded": what autotune found best.'
    ),
]
OptLevel = Annotated[int, typer.Option(help="0 to 3.")]
CompatibleTarget = Annotated[
    bool | None,
    typer.Option(
        "--compatible-target/--no-compatible-target",
        envvar="KCACHE_COMPATIBLE_TARGETS",
        help="Whether a stored kernel for a lower target will do if there is none for --target; without it "
        "as the namespace says.",
    ),
]
Dynamic = Annotated[
    str,
    typer.Option(
        "--dynamic",
        help="no: for exactly the program's sizes. yes: for all sizes that are dynamic in it, or differ in "
        "--evidence. auto: the best that is stored. assume: for all sizes, without evidence.",
        autocompletion=lambda: list(_DYNAMIC),
    ),
]
Symbols = Annotated[
    str | None,
    typer.Option(
        metavar="ARG.AXIS[:min=N][:max=N][:multiple_of=N],...",
        help="Which axes are symbols, and their bounds; without it all that may be.",
    ),
]
Evidence = Annotated[
    list[str] | None,
    typer.Option(
        "--evidence",
        metavar="FILE",
        help="The same computation at other sizes: those that differ may be dynamic; again for more.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Addr = Annotated[
    str | None,
    typer.Option(
        envvar="KCACHE_ADDR",
        help="host:port or unix:/path; without it kcache starts a service for you.",
    ),
]
Namespace = Annotated[str | None, typer.Option(envvar="KCACHE_NAMESPACE", help="Key space.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="File with the bearer token; $KCACHE_TOKEN is the token itself."),
]
Tls = Annotated[
    str | None,
    typer.Option(
        envvar="KCACHE_TLS",
        help='"system", or a PEM file with the authorities to trust.',
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(envvar="KCACHE_TIMEOUT", help="Seconds that it may take, 600."),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(envvar="KCACHE_CACHE_DIR", help="Directory of the local tiers."),
]


def connect(
    addr: str | None,
    namespace: str | None,
    token_file: Path | None,
    tls: str | None,
    timeout: float | None,
    cache_dir: Path | None,
) -> Client:
    """A client that uses the named service or fails: a command that names one means that one."""
    from kcache_grpc import Client

    return Client(
        addr,
        namespace=namespace,
        token=read_token(token_file),
        tls=True if tls == "system" else tls or None,
        cache_dir=cache_dir,
        timeout=timeout,
        strict=True,
    )


def compile_options(
    numerics: str,
    opt_level: int,
    schedule: str,
    compatible_targets: bool | None = None,
    bound: Sequence[int] | None = None,
) -> Options:
    """As ``Client.compile`` takes them. Raises ``ArgumentError``."""
    from kcache_grpc import Options

    return Options(
        numerics=numerics,
        opt_level=opt_level,
        schedule=schedule,
        compatible_targets=compatible_targets,
        bound=tuple(bound or ()),
    )


def sizes(dynamic: str, symbols: str | None) -> dict[str, Any]:
    """``dynamic`` and ``symbols`` as ``Client.compile`` takes them. Raises ``ArgumentError``."""
    if dynamic not in _DYNAMIC:
        raise ArgumentError(f"--dynamic is {dynamic!r}; use one of {', '.join(_DYNAMIC)}")
    if symbols is None:
        return {"dynamic": _DYNAMIC[dynamic]}
    if dynamic == "no":
        raise ArgumentError("--symbols needs --dynamic yes, auto or assume")
    pairs = [_symbol(text) for text in symbols.split(",")]
    if len(dict(pairs)) < len(pairs):
        raise ArgumentError(f"--symbols {symbols} names an axis twice")
    return {"dynamic": _DYNAMIC[dynamic], "symbols": dict(pairs)}


def _symbol(text: str) -> tuple[tuple[int, int], Dim]:
    """``0.1`` or ``0.1:min=2:max=64:multiple_of=8``."""
    from kcache_grpc import Dim

    place, *bounds = text.strip().split(":")
    match = _PLACE.fullmatch(place)
    matches = [_BOUND.fullmatch(bound) for bound in bounds]
    if match is None or None in matches:
        raise ArgumentError(f"--symbols: {text!r} is not like 0.1 or 0.1:min=2:max=64:multiple_of=8")
    named = {bound["name"]: int(bound["size"]) for bound in matches if bound is not None}
    return (int(match["arg"]), int(match["axis"])), Dim(**named)


def read_token(path: Path | None) -> str | None:
    """The first line of a token file. Raises ``NotFound``."""
    if path is None:
        return None
    try:
        return path.read_text().strip()
    except OSError as error:
        raise NotFound(f"--token-file: the token file {path} cannot be read: {error.strerror}") from error


def read_programs(file: str, evidence: list[str] | None) -> bytes | Path | list[bytes | Path]:
    """What a FILE argument and ``--evidence`` name, as ``Client.compile`` takes it."""
    program = read_file(file)
    return program if not evidence else [program, *map(read_file, evidence)]


def read_file(name: str) -> bytes | Path:
    """What a FILE argument names."""
    return sys.stdin.buffer.read() if name == "-" else Path(name)
