"""``kcache autotune``: schedule choices tried on this machine, and kept for all that are like it."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.cli.commands import compile
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.schedule import CHOICES

if TYPE_CHECKING:
    from kcache_grpc import Tuning

Choices = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:VALUE],...",
        help=f"Which choices to try, or which values of them, of {', '.join(CHOICES)}; without it all.",
        autocompletion=lambda: list(CHOICES),
    ),
]
Budget = Annotated[float, typer.Option(help="Seconds that it may take, about.")]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SIZE[,...]",
        help="Dynamic sizes to time at, by symbol or ARG.AXIS, such as s0=128,1.1=64; repeat for more.",
    ),
]
Dynamic = Annotated[
    str,
    typer.Option(
        "--dynamic",
        help="no: the kernel for exactly the program's sizes. yes: for all sizes that are dynamic in it, or "
        "differ in --evidence. assume: for all sizes, without evidence.",
    ),
]
_SIZE = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)|(?P<arg>[0-9]{1,9})[.](?P<axis>[0-9]{1,9}))=(?P<size>[0-9]{1,19})"
)


def autotune(
    file: o.ProgramFile,
    choices: Choices = None,
    budget: Budget = 30.0,
    sizes: Sizes = None,
    dynamic: Dynamic = "no",
    symbols: o.Symbols = None,
    evidence: o.Evidence = None,
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
    """Find the fastest schedule of a program on this machine; `--schedule recorded` uses it from then on.

    Each choice is compiled, compared with the default's results and timed in turns with it. Timings are kept
    as they are taken: an interrupted run loses none. Only the winner is part of the key.
    """
    from kcache_grpc.model.options import Options

    if dynamic == "auto":
        raise ArgumentError("--dynamic auto is one kernel now and another later: tune with no or yes")
    names = None if choices is None else _choices(choices)
    tuples = None if sizes is None else [_sizes(text) for text in sizes]
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        tuning = client.autotune(
            o.read_programs(file, evidence),
            format=format,
            target=target,
            options=Options(numerics=numerics),
            choices=names,
            budget=budget,
            sizes=tuples,
            **o.sizes(dynamic, symbols),
            on_progress=_progress_reporter(Path(file).name),
        )
        compile.warn_of_other_service(client, tuning.kernel)
    described = _described(tuning)
    output.show(described, json, lambda: _table(tuning, described))


def _choices(text: str) -> list[str] | dict[str, list[str]]:
    """``grain,tile``, or with values ``grain:4,grain:16,tile``."""
    parts = [part.strip() for part in text.split(",")]
    if not any(":" in part for part in parts):
        return parts
    choices: dict[str, list[str]] = {}
    for part in parts:
        name, _, value = part.partition(":")
        choices.setdefault(name, []).extend([value] if value else CHOICES.get(name, ("",)))
    return choices


def _sizes(text: str) -> dict[Any, int]:
    """``s0=128,1.1=64`` as ``Client.autotune`` takes it. Raises ``ArgumentError``."""
    sizes: dict[Any, int] = {}
    for part in text.split(","):
        read = _SIZE.fullmatch(part.strip())
        if read is None:
            raise ArgumentError(f"--sizes: {part!r} is not like s0=128 or 0.1=128")
        place = read["name"] or (int(read["arg"]), int(read["axis"]))
        if place in sizes:
            raise ArgumentError(f"--sizes {text} names {part.partition('=')[0].strip()} twice")
        sizes[place] = int(read["size"])
    return sizes


def _progress_reporter(name: str) -> Any:
    """A line to standard error for each step, on a terminal."""
    console = output.stderr()
    began, tried = time.monotonic(), itertools.count(1)

    def report(label: str, seconds: float) -> None:
        if not console.is_terminal:
            return
        spent = f"{time.monotonic() - began:5.1f} s  {name}: "
        line = f"{label}, {seconds:.1f} s" if seconds else f"{next(tried)}. {label or 'default'}"
        console.print(spent + line, highlight=False)

    return report


def _described(tuning: Tuning) -> dict[str, Any]:
    """Return the JSON value of a tuning."""
    return {
        "key": tuning.kernel.key,
        "service": tuning.kernel.service,
        "spec_digest": tuning.kernel.spec_digest.hex(),
        "kernel_digest": tuning.kernel.manifest.kernel_digest.hex(),
        "device": tuning.device,
        "schedule": tuning.schedule,
        "speedup": round(tuning.speedup, 3),
        "recorded": tuning.recorded,
        "timings": [
            {
                "schedule": each.schedule,
                "sizes": each.sizes,
                "microseconds": each.nanoseconds / 1e3,
                "samples": each.samples,
            }
            for each in tuning.timings
        ],
        "tried": [
            {
                "schedule": each.schedule,
                "sizes": each.sizes,
                "microseconds": each.nanoseconds / 1e3,
                "samples": each.samples,
                "times_faster": round(each.ratio, 3),
                "from": round(each.low, 3),
                "to": round(each.high, 3),
            }
            for each in tuning.trials
        ],
        "rejected": dict(tuning.rejected),
    }


def _table(tuning: Tuning, described: dict[str, Any]) -> Any:
    """Return the printed form of a tuning: its result, and a row for each schedule that was tried."""
    from rich.console import Group

    head = {
        "key": described["key"],
        "service": described["service"],
        "device": tuning.device,
        "schedule": tuning.schedule or "default",
        "speedup": f"{tuning.speedup:.2f}",
        "new timings": tuning.recorded,
        "timings in all": len(tuning.timings),
    }
    opened = any(each.sizes for each in tuning.trials)
    rows = [
        {
            "tried": each.schedule or "default",
            **({"sizes": each.sizes} if opened else {}),
            "microseconds": f"{each.nanoseconds / 1e3:.2f}",
            "times faster": f"{each.ratio:.2f}",
            "half of the rounds": f"{each.low:.2f} to {each.high:.2f}",
            "rounds": each.samples,
        }
        for each in sorted(tuning.trials, key=lambda each: (each.sizes, -each.ratio))
    ]
    out = [{"schedule": schedule, "out because": why} for schedule, why in tuning.rejected.items()]
    return Group(output.pairs(head), "", output.rows(rows), *([output.rows(out)] if out else []))
