"""``kcache profile``: the time of each launch of a kernel, its operations, and its share of the peak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.cli.commands import compile, profile_report
from kcache_grpc.cli.commands import run as run_program
from kcache_grpc.errors import ArgumentError

if TYPE_CHECKING:
    from kcache_grpc import Client, Kernel

Calls = Annotated[int, typer.Option(min=1, help="Calls to measure.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="PATH", help="Write a page with all launches.")]
Top = Annotated[int, typer.Option(min=1, help="Rows of the table; --json and --html have all.")]


def profile(
    file: o.ProgramFile,
    inputs: run_program.Inputs = None,
    seed: run_program.Seed = 0,
    size: run_program.Size = 16,
    calls: Calls = 30,
    top: Top = 20,
    html: Html = None,
    format: o.Format = None,
    numerics: o.Numerics = "default",
    opt_level: o.OptLevel = 3,
    schedule: o.Schedule = "",
    target: o.TargetName = "host",
    bound: o.Bound = None,
    compatible_target: o.CompatibleTarget = None,
    dynamic: o.Dynamic = "no",
    symbols: o.Symbols = None,
    evidence: o.Evidence = None,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Measure the launches of a program's kernel on this machine's CPUs: time, operations, share of the peak.

    The kernel is compiled a second time, with launches:reported in its schedule; its launches are the same.
    """
    if html is not None and not html.parent.is_dir():
        raise ArgumentError(f"--html: the directory {html.parent} does not exist")
    sizes = o.sizes(dynamic, symbols)
    options = o.compile_options(numerics, opt_level, schedule, compatible_target, bound)
    program = o.read_programs(file, evidence)
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        plain = client.compile(program, format=format, target=target, options=options, **sizes)
        compile.warn_of_other_service(client, plain)
        reporting = _reporting(client, plain, program, {"format": format, "target": target, **sizes})
        arrays = run_program.arguments(plain, inputs or [], seed, size)
        report = _measured(plain, reporting, arrays, calls)
    report = {"program": file, **report}
    if html is not None:
        html.write_text(profile_report.page(report))
    output.show(report, json, lambda: profile_report.table(report, top))


def _reporting(client: Client, plain: Kernel, program: Any, compile_options: dict[str, Any]) -> Kernel:
    """The same kernel with ``launches:reported``."""
    from kcache_grpc.model.schedule import REPORTED, with_choice

    chosen = plain.manifest.options
    schedule = with_choice(chosen.schedule, REPORTED, "reported")
    return client.compile(program, options=replace(chosen, schedule=schedule), **compile_options)


def _measured(plain: Kernel, reporting: Kernel, arrays: list[Any], calls: int) -> dict[str, Any]:
    from kcache_grpc.runtime.launch_times import measure_launches, measure_peaks

    prepared, others = run_program.bound_to(plain, arrays)
    prepared(*others)
    milliseconds = sorted(run_program.timed(prepared, others) for _ in range(calls))
    times = measure_launches(*run_program.bound_to(reporting, arrays), calls)
    report = profile_report.report(reporting, times, measure_peaks(times.workers))
    return {**report, "unprofiled_milliseconds": milliseconds[len(milliseconds) // 2]}
