"""``kcache explain``: why a program hits or misses, and what the nearest stored kernels have instead."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kcache_grpc import Explanation
    from kcache_grpc.model.explanation import Neighbor

Neighbors = Annotated[int, typer.Option(min=1, max=20, help="Stored kernels to compare a miss with.")]


Torch = Annotated[
    bool, typer.Option("--torch", help="Show what became of the graphs of torch.compile, instead of FILE.")
]
Last = Annotated[int, typer.Option(min=1, help="With --torch: how many graphs, the last ones.")]


def explain(
    file: o.OptionalProgramFile = None,
    format: o.Format = None,
    target: o.TargetName = "host",
    numerics: o.Numerics = "default",
    opt_level: o.OptLevel = 3,
    schedule: o.Schedule = "",
    compatible_target: o.CompatibleTarget = None,
    dynamic: o.Dynamic = "no",
    symbols: o.Symbols = None,
    evidence: o.Evidence = None,
    neighbors: Neighbors = 3,
    torch: Torch = False,
    last: Last = 20,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Say why compiling a program hits or misses at the service; nothing is stored or compiled.

    With --torch: what became of the graphs that torch.compile(backend="kcache") compiled with this cache
    directory, what was left to PyTorch and why.
    """
    if torch == (file is not None):
        raise ArgumentError("pass a FILE, or --torch")
    if file is None:
        _explain_torch(cache_dir, last, json)
        return
    sizes = o.sizes(dynamic, symbols)
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        explanation = client.explain(
            o.read_programs(file, evidence),
            format=format,
            target=target,
            options=o.compile_options(numerics, opt_level, schedule, compatible_target),
            neighbors=neighbors,
            **sizes,
        )
    output.show(_described(explanation), json, lambda: _page(explanation))


def _explain_torch(cache_dir: Path | None, last: int, json: bool) -> None:
    from kcache_grpc.client import decision_log
    from kcache_grpc.client.config import from_environment

    decisions = decision_log.read(from_environment(None, cache_dir=cache_dir).cache_dir, last)
    output.show(decisions, json, lambda: _torch_page(decisions))


def _torch_page(decisions: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if not decisions:
        return Text("no graph of torch.compile was compiled with this cache directory")
    lines: list[Any] = []
    for each in decisions:
        head = f"{each['time']}  {each['kind']} ({each['origin']}): {len(each['kernels'])} kernels"
        if each["origin"] == "compiled":
            head += f", {each['operations_share']:.1%} of operations, {each['traffic_share']:.1%} of traffic"
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in each["seconds"].items())
        lines.append(Text(f"{head}; {stages}" if stages else head))
        lines += [Text(f"  {count} x {name}: {reason}") for name, reason, count in each["left_out"]]
    return Group(*lines)


def _described(explanation: Explanation) -> dict[str, Any]:
    """As JSON: digests in hex, times in ISO 8601."""
    described: dict[str, Any] = _plain(asdict(explanation))
    return {"hit": explanation.hit, **described}


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {name: _plain(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else value


def _page(explanation: Explanation) -> RenderableType:
    from rich.console import Group
    from rich.markup import escape
    from rich.text import Text

    word, style = ("hit", "bold green") if explanation.hit else ("miss", "bold yellow")
    head = Text.assemble((word, style), f": {explanation.summary}")
    parts: list[Any] = [head, "", output.pairs(_head(explanation))]
    if explanation.failure is not None and explanation.failure.message:
        parts += ["", f"[bold]failed in stage {escape(explanation.failure.stage or '-')}[/]"]
        parts.append(escape(explanation.failure.message))
    for number, near in enumerate(explanation.nearest, start=1):
        parts += ["", *_neighbor(number, near)]
    return Group(*parts)


def _head(explanation: Explanation) -> dict[str, Any]:
    others = [each for each in explanation.mappings if not each.own]
    head = {
        "key": explanation.key or None,
        "kernel" if explanation.hit else "missing kernel": explanation.kernel_digest.hex()[:16],
        "sizes": explanation.arg_spec,
        "guard": explanation.guard,
        "program": explanation.program_digest.hex()[:16]
        + (" (known)" if explanation.program_known else " (new here)"),
        "same spec": [
            f"{each.program_digest.hex()[:16]} of {each.created:%Y-%m-%d %H:%M}" for each in others
        ],
    }
    return {name: value for name, value in head.items() if value}


def _neighbor(number: int, near: Neighbor) -> list[Any]:
    from rich.markup import escape
    from rich.padding import Padding

    from kcache_grpc.model.explanation import describe_neighbor

    lines = [f"[bold]{number}.[/] {escape(describe_neighbor(near))}"]
    sentences = [Padding(f"- {escape(each.sentence)}", (0, 0, 0, 3)) for each in near.differences]
    return [*lines, *sentences]
