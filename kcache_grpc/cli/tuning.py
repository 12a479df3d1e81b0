"""``kcache autotune``: schedule choices tried on this machine, and kept for all that are like it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.model.schedule import CHOICES

if TYPE_CHECKING:
    from kcache_grpc import Tuning

Choices = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[,NAME...]",
        help=f"Which choices to try, of {', '.join(CHOICES)}; without it all.",
        autocompletion=lambda: list(CHOICES),
    ),
]
Budget = Annotated[float, typer.Option(help="Seconds that it may take, about.")]


def autotune(
    file: o.ProgramFile,
    choices: Choices = None,
    budget: Budget = 30.0,
    format: o.Format = None,
    target: o.TargetName = "host",
    numerics: o.Numerics = "default",
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Find the fastest schedule of a program on this machine; `--schedule recorded` uses it from then on."""
    from kcache_grpc.model.options import Options

    names = None if choices is None else [name.strip() for name in choices.split(",")]
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        tuning = client.autotune(
            o.read_file(file),
            format=format,
            target=target,
            options=Options(numerics=numerics),
            choices=names,
            budget=budget,
            on_progress=_told(Path(file).name),
        )
    described = _described(tuning)
    output.show(described, json, lambda: _table(tuning, described))


def _told(name: str) -> Any:
    """A line to standard error for each step, on a terminal."""
    console = output.stderr()

    def report(what: str, seconds: float) -> None:
        if console.is_terminal:
            console.print(f"{name}: {what or 'default'}" + (f", {seconds:.1f} s" if seconds else ""))

    return report


def _described(tuning: Tuning) -> dict[str, Any]:
    return {
        "key": tuning.kernel.key,
        "spec_digest": tuning.kernel.spec_digest.hex(),
        "kernel_digest": tuning.kernel.manifest.kernel_digest.hex(),
        "device": tuning.device,
        "schedule": tuning.schedule,
        "speedup": round(tuning.speedup, 3),
        "recorded": tuning.recorded,
        "timings": [
            {"schedule": each.schedule, "microseconds": each.nanoseconds / 1e3, "samples": each.samples}
            for each in tuning.timings
        ],
        "rejected": dict(tuning.rejected),
    }


def _table(tuning: Tuning, described: dict[str, Any]) -> Any:
    from rich.console import Group

    head = {
        "key": described["key"],
        "device": tuning.device,
        "schedule": tuning.schedule or "default",
        "speedup": f"{tuning.speedup:.2f}",
        "new timings": tuning.recorded,
    }
    rows = [
        {
            "schedule": each.schedule or "default",
            "microseconds": f"{each.nanoseconds / 1e3:.2f}",
            "samples": each.samples,
        }
        for each in tuning.timings
    ]
    out = [{"schedule": schedule, "out because": why} for schedule, why in tuning.rejected.items()]
    return Group(output.pairs(head), "", output.rows(rows), *([output.rows(out)] if out else []))
