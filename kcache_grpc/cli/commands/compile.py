"""``kcache compile``: a program in, a kernel in the cache, an artifact in a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.errors import ArgumentError

if TYPE_CHECKING:
    from kcache_grpc import Client, Kernel, Options

_TEXT_KINDS = ("mlir", "llvm", "asm", "ptx")
_BINARY_KINDS = ("so", "cubin")
_KINDS = (*_BINARY_KINDS, *_TEXT_KINDS)

Emit = Annotated[
    str | None,
    typer.Option(help=f"Write an artifact: {', '.join(_KINDS)}.", autocompletion=lambda: list(_KINDS)),
]
Destination = Annotated[
    Path | None, typer.Option("-o", "--output", help="Where to; without it texts go to standard output.")
]


def compile_program(
    file: o.ProgramFile,
    format: o.Format = None,
    target: o.TargetName = "host",
    numerics: o.Numerics = "default",
    opt_level: o.OptLevel = 3,
    schedule: o.Schedule = "",
    compatible_target: o.CompatibleTarget = None,
    bound: o.Bound = None,
    dynamic: o.Dynamic = "no",
    symbols: o.Symbols = None,
    evidence: o.Evidence = None,
    emit: Emit = None,
    destination: Destination = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Compile again although a failure is remembered.")
    ] = False,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Compile a program, or find its kernel, and say what came of it."""
    _check_emit(emit, destination)
    compile_options = {**o.sizes(dynamic, symbols), "retry": retry}
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        kernel, stages, expected = obtain(
            client,
            file,
            format,
            target,
            o.compile_options(numerics, opt_level, schedule, compatible_target, bound),
            compile_options,
            evidence,
        )
        if emit is not None and destination is None:
            sys.stdout.buffer.write(kernel.artifact(emit))
            return
        if emit is not None and destination is not None:
            destination.write_bytes(kernel.artifact(emit))
    described = describe(kernel) | {
        "expected_seconds": expected,
        "stages": stages,
        "written": str(destination) if emit else None,
    }
    output.show(described, json, lambda: output.pairs(_for_people(described)))


def obtain(
    client: Client,
    file: str,
    format: str | None,
    target: str,
    options: Options,
    sizes: dict[str, Any],
    evidence: list[str] | None = None,
) -> tuple[Kernel, list[dict[str, Any]], float | None]:
    """The kernel of a program, the stages that it went through, in groups with their seconds, and the seconds
    that the service expected its compile to take.
    """
    with _progress(Path(file).name) as (report, stages):
        kernel = client.compile(
            o.read_programs(file, evidence),
            format=format,
            target=target,
            options=options,
            on_progress=report,
            **sizes,
        )
    warn_of_other_service(client, kernel)
    return kernel, stages.groups, stages.expected


def warn_of_other_service(client: Client, kernel: Kernel) -> None:
    """Names the store that a key belongs to where it is not that of the requested service."""
    if kernel.service != client.service:
        output.warn(
            f"key {kernel.key} is of the store of the service {kernel.service!r}, not of {client.service}"
        )


def describe(kernel: Kernel) -> dict[str, Any]:
    """A kernel as JSON."""
    manifest = kernel.manifest
    return {
        "key": kernel.key,
        "origin": kernel.origin,
        "service": kernel.service,
        "server_id": kernel.server_id,
        "spec_digest": kernel.spec_digest.hex(),
        "kernel_digest": manifest.kernel_digest.hex(),
        "namespace": manifest.namespace,
        "target": str(manifest.target),
        "options": str(manifest.options),
        "inputs": {name: str(spec) for name, spec in zip(_names(kernel), manifest.inputs, strict=True)},
        "outputs": [str(spec) for spec in manifest.outputs],
        "constants": [str(spec) for spec in manifest.constants],
        "symbols": {each.name: f"axis {each.axis} of argument {each.arg}" for each in manifest.symbols},
        "workspace_bytes": manifest.workspace_bytes,
        "guard": manifest.guard,
        "launches": len(manifest.launches) + len(manifest.gpu_launches),
        "artifacts": {ref.kind: ref.size for ref in manifest.artifacts},
        "compile_seconds": manifest.compile_seconds,
        "seconds_saved": kernel.seconds_saved,
        "compile_time": manifest.compile_time.isoformat(),
        "server_version": manifest.server_version,
    }


def _names(kernel: Kernel) -> list[str]:
    arg_names = kernel.binding.arg_names
    count = len(kernel.manifest.inputs)
    names = [
        arg_names[index] if index < len(arg_names) and arg_names[index] else f"arg{index}"
        for index in range(count)
    ]
    return names if len(set(names)) == count else [f"{name}#{index}" for index, name in enumerate(names)]


def _for_people(described: dict[str, Any]) -> dict[str, Any]:
    """Without what is only for programs."""
    short = {name: value for name, value in described.items() if value not in (None, [], {}, "")}
    short["inputs"] = ", ".join(f"{name}: {spec}" for name, spec in described["inputs"].items()) or "none"
    short["artifacts"] = ", ".join(f"{kind} {size:,} B" for kind, size in described["artifacts"].items())
    for name in ("compile_seconds", "seconds_saved"):
        short[name] = f"{described[name]:.3f}"
    if described["expected_seconds"] is not None:
        short["expected_seconds"] = expectation(described["expected_seconds"])
    if described["stages"]:
        short["stages"] = _slowest(described["stages"])
    return short


def expectation(seconds: float) -> str:
    """An estimate in words, such as "about 2.1 s"."""
    return f"about {seconds:.1f} s" if seconds >= 0.05 else f"about {seconds * 1e3:.0f} ms"


def _slowest(groups: list[dict[str, Any]]) -> str:
    """Those that took at least a fiftieth of the time, in order, and the rest in one figure."""
    total = sum(entry["seconds"] for entry in groups)
    slow = [entry for entry in groups if entry["seconds"] * 50 >= total]
    rest = total - sum(entry["seconds"] for entry in slow)
    texts = [f"{_together(entry['stages'])} {entry['seconds']:.3f}" for entry in slow]
    others = sum(len(entry["stages"]) for entry in groups if entry not in slow)
    return ", ".join([*texts, *([f"{output.count(others, 'other')} {rest:.3f}"] if others else [])])


def _together(stages: list[str]) -> str:
    """Stages whose seconds are known together: the names of a few, the ends of many."""
    return "+".join(stages) if len(stages) <= 4 else f"{stages[0]} to {stages[-1]} ({len(stages)} stages)"


def _check_emit(emit: str | None, destination: Path | None) -> None:
    if emit is None and destination is not None:
        raise typer.BadParameter("say which artifact to write: --emit so", param_hint="-o")
    if emit is not None and emit not in _KINDS:
        raise typer.BadParameter(f"use one of {', '.join(_KINDS)}", param_hint="--emit")
    if emit in _BINARY_KINDS and destination is None and sys.stdout.isatty():
        raise ArgumentError(f"an artifact {emit!r} is not for a terminal; say where to: -o FILE")


class Stages:
    """Stages and their seconds, as messages tell them.

    Stages that one message tells of began at times that nobody told: they are a group, with the seconds since
    the message before.
    """

    def __init__(self) -> None:
        self.groups: list[dict[str, Any]] = []
        #: Seconds that the compile was expected to take, as far as that was told.
        self.expected: float | None = None
        self._latest, self._reported = "send", 0.0

    def report(self, stage: str, at: float) -> None:
        """A stage began, as a message says that came after this many seconds."""
        self.expected = getattr(stage, "expected_seconds", self.expected)
        if stage == self._latest:
            return
        if at < self._reported:  # another attempt, of which the seconds count anew
            self._reported = 0.0
        if at > self._reported or not self.groups:
            self._end(at)
        else:
            self.groups[-1]["stages"].append(self._latest)
        self._latest = stage

    def finish(self, seconds: float) -> None:
        """So long after the last message. Nothing where none came: nothing was compiled."""
        if self.groups:
            self._end(self._reported + seconds)

    def _end(self, at: float) -> None:
        self.groups.append({"stages": [self._latest], "seconds": at - self._reported})
        self._reported = at


@contextmanager
def _progress(name: str) -> Generator[tuple[Any, Stages], None, None]:
    """A spinner with the present stage, on a terminal; stages with their seconds everywhere."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    stages = Stages()
    reported_at = time.perf_counter()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = output.stderr()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"{name}: look up")

        def report(stage: str, at: float) -> None:
            nonlocal reported_at
            reported_at = time.perf_counter()
            stages.report(stage, at)
            note = "" if stages.expected is None else f", {expectation(stages.expected)} expected"
            progress.update(task, description=f"{name}: {stage}{note}")

        yield report, stages
    stages.finish(time.perf_counter() - reported_at)
