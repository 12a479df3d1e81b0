"""The measurements of ``kcache profile``: as a JSON value, as a table, and as a page of HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from kcache_grpc.cli import output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kcache_grpc import Kernel
    from kcache_grpc.runtime.launch_times import CallTimes, LaunchTime, Peaks

#: Operations that most of a launch's time goes to where it has one.
_MAIN = ("stablehlo.convolution", "stablehlo.dot_general", "stablehlo.dot")
_RESULT = re.compile(r"-> \(?tensor<([^>]*)>")
_DIMS = re.compile(r"^((?:(?:\d+|\?)x)*)(.*)$")
_STYLE = """
:root { color-scheme: light dark; --bar: light-dark(#1f6f8b, #5fb3cf); --line: light-dark(#ddd, #444); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem;
  background: light-dark(#fff, #16181a); color: light-dark(#222, #ddd); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
.number { text-align: right; white-space: nowrap; }
.bar { width: 12rem; }
.bar div { background: var(--bar); height: .8rem; margin-top: .3rem; min-width: 1px; }
tfoot td { font-weight: bold; }
summary { cursor: pointer; margin: 1.5rem 0 .5rem; font-weight: bold; }
"""
_COLUMNS = (
    "",
    "µs",
    "%",
    "launches",
    "operations",
    "result",
    "Gflop/s",
    "GB/s",
    "% of peak flops",
    "% of peak GB/s",
)


def report(kernel: Kernel, times: CallTimes, peaks: Peaks) -> dict[str, Any]:
    """All figures: seconds of a call, of its launches in order and of equal launches together."""
    lines = kernel.artifact("mlir").decode().splitlines()
    launches = [_launch(launch, times, peaks, lines) for launch in times.launches]
    return {
        "key": kernel.key,
        "target": str(kernel.manifest.target),
        "options": str(kernel.manifest.options),
        "threads": times.workers,
        "calls": times.calls,
        "seconds": times.seconds,
        "fastest_seconds": times.low,
        "slowest_seconds": times.high,
        "between_seconds": times.between,
        "peak_flops_per_second": peaks.flops,
        "peak_bytes_per_second": peaks.bandwidth,
        "launches": launches,
        "groups": _groups(launches, times, peaks),
    }


def _launch(launch: LaunchTime, times: CallTimes, peaks: Peaks, lines: Sequence[str]) -> dict[str, Any]:
    parts = [op.partition(":") for op in launch.spec.ops]
    ops = [(name, int(line or 0)) for name, _, line in parts]
    main = next((op for op in ops if op[0] in _MAIN), ops[-1] if ops else ("", 0))
    return {
        "name": launch.spec.name,
        "operations": [name.partition(".")[2] or name for name, _ in ops],
        "lines": [line for _, line in ops if line],
        "result": _result(lines[main[1] - 1]) if main[1] else "",
        "runs": launch.runs,
        **_rates(
            launch.seconds, launch.flops * launch.runs, launch.bytes * launch.runs, times.seconds, peaks
        ),
    }


def _rates(seconds: float, flops: float, moved: float, total: float, peaks: Peaks) -> dict[str, Any]:
    """Rates of this many operations and bytes, and what of the peaks they are; 0 for what never ran."""
    per_second = 1 / seconds if seconds > 0 else 0.0
    compute, memory = flops * per_second / peaks.flops, moved * per_second / peaks.bandwidth
    return {
        "seconds": seconds,
        "share": seconds / total,
        "flops": flops,
        "bytes": moved,
        "flops_per_second": flops * per_second,
        "bytes_per_second": moved * per_second,
        "share_of_peak_flops": compute,
        "share_of_peak_bandwidth": memory,
        "bound": "compute" if compute > memory else "memory",
    }


def _result(line: str) -> str:
    """``f32[128,768]`` of a line that ends with the type of its result; empty where it has none."""
    match = _RESULT.search(line)
    if match is None:
        return ""
    dims = _DIMS.match(match[1])
    return f"{dims[2]}[{dims[1].rstrip('x').replace('x', ',')}]" if dims else ""


def _groups(launches: list[dict[str, Any]], times: CallTimes, peaks: Peaks) -> list[dict[str, Any]]:
    """Launches with the same operations and result together, the longest first."""
    members: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for launch in launches:
        members.setdefault((label(launch["operations"]), launch["result"]), []).append(launch)
    groups = [_group(*key, equal, times, peaks) for key, equal in members.items()]
    return sorted(groups, key=lambda group: -group["seconds"])


def _group(
    operations: str, result: str, equal: list[dict[str, Any]], times: CallTimes, peaks: Peaks
) -> dict[str, Any]:
    seconds, flops, moved = (sum(each[name] for each in equal) for name in ("seconds", "flops", "bytes"))
    return {
        "operations": operations,
        "result": result,
        "launches": [each["name"] for each in equal],
        **_rates(seconds, flops, moved, times.seconds, peaks),
    }


def label(operations: Sequence[str]) -> str:
    """The operations of a launch as text, equal ones once: ``dot_general, add, multiply x3``."""
    counts = Counter(operations)
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts.items())


def table(described: dict[str, Any], top: int) -> RenderableType:
    """The longest groups, the rest, and the time between launches: rows that add up to the call."""
    from rich.console import Group

    groups = described["groups"]
    rows = [_row(group) for group in groups[:top]]
    rest = groups[top:]
    if rest:
        rows.append(
            _plain_row(f"{output.count(len(rest), 'other row')}", sum(g["seconds"] for g in rest), described)
        )
    rows.append(_plain_row("between launches", described["between_seconds"], described))
    rows.append(_plain_row("call", described["seconds"], described))
    return Group(
        output.pairs(_head(described)),
        "",
        output.rows(rows, expendable=("bound", "GB/s", "Gflop/s", "result")),
    )


def _head(described: dict[str, Any]) -> dict[str, Any]:
    fastest, slowest = (described[name] * 1e3 for name in ("fastest_seconds", "slowest_seconds"))
    threads = output.count(described["threads"], "thread")
    return {
        "key": described["key"],
        "target": described["target"],
        "call": f"{described['seconds'] * 1e3:.4f} ms ({fastest:.4f} to {slowest:.4f}, "
        f"{output.count(described['calls'], 'call')}, {threads})",
        "without profiling": f"{described['unprofiled_milliseconds']:.4f} ms",
        "peaks measured": f"{described['peak_flops_per_second'] / 1e9:.1f} Gflop/s in f32, "
        f"{described['peak_bytes_per_second'] / 1e9:.1f} GB/s read from memory",
    }


def _row(group: dict[str, Any]) -> dict[str, Any]:
    peak = group["share_of_peak_flops" if group["bound"] == "compute" else "share_of_peak_bandwidth"]
    return {
        "microseconds": round(group["seconds"] * 1e6, 1),
        "%": round(group["share"] * 100, 1),
        "launches": len(group["launches"]),
        "operations": group["operations"],
        "result": group["result"],
        "Gflop/s": round(group["flops_per_second"] / 1e9, 1),
        "GB/s": round(group["bytes_per_second"] / 1e9, 1),
        "% of peak": round(peak * 100, 1),
        "bound": group["bound"],
    }


def _plain_row(name: str, seconds: float, described: dict[str, Any]) -> dict[str, Any]:
    return {
        "microseconds": round(seconds * 1e6, 1),
        "%": round(seconds / described["seconds"] * 100, 1),
        "launches": "",
        "operations": name,
        **dict.fromkeys(("result", "Gflop/s", "GB/s", "% of peak", "bound"), ""),
    }


def page(report: dict[str, Any]) -> str:
    """The report as HTML: equal launches together, then every launch in order."""
    title = f"Launches of {report['program']}"
    groups = [{**group, "runs": len(group["launches"])} for group in report["groups"]]
    launches = [{**each, "operations": _with_lines(each)} for each in report["launches"]]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>",
            f"<body>\n<h1>{escape(title)}</h1>",
            f"<p>{escape(_summary(report))}</p>",
            _table(_COLUMNS, groups, report),
            "<details>\n<summary>Every launch, in order</summary>",
            "<p>Numbers are lines of the artifact <code>mlir</code>.</p>",
            _table(("", "µs", "%", "runs", *_COLUMNS[4:]), launches, report),
            "</details>\n</body>\n</html>\n",
        ]
    )


def _summary(report: dict[str, Any]) -> str:
    mean, fastest, slowest = (
        report[name] * 1e3 for name in ("seconds", "fastest_seconds", "slowest_seconds")
    )
    flops, bandwidth = (report[name] / 1e9 for name in ("peak_flops_per_second", "peak_bytes_per_second"))
    return (
        f"Key {report['key']}, target {report['target']}, {report['options']}, threads: {report['threads']}. "
        f"A call took {mean:.4f} ms ({fastest:.4f} to {slowest:.4f}, calls: {report['calls']}), without "
        f"profiling {report['unprofiled_milliseconds']:.4f} ms. Measured peaks: {flops:.1f} Gflop/s in f32, "
        f"{bandwidth:.1f} GB/s read from memory; what is in caches is read faster."
    )


def _with_lines(launch: dict[str, Any]) -> str:
    lines = ", ".join(map(str, launch["lines"]))
    return f"{label(launch['operations'])} ({lines})" if lines else label(launch["operations"])


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]], report: dict[str, Any]) -> str:
    longest = max((row["seconds"] for row in rows), default=0.0) or 1.0
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    return "\n".join(
        [
            f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>",
            *(_page_row(row, row["seconds"] / longest) for row in rows),
            "</tbody>\n<tfoot>",
            _total("between launches", report["between_seconds"], report, len(columns)),
            _total("call", report["seconds"], report, len(columns)),
            "</tfoot>\n</table>",
        ]
    )


def _page_row(row: dict[str, Any], part: float) -> str:
    numbers = _cells([f"{row['seconds'] * 1e6:.1f}", f"{row['share'] * 100:.1f}", f"{row['runs']:g}"])
    rates = [row["flops_per_second"] / 1e9, row["bytes_per_second"] / 1e9]
    shares = [row["share_of_peak_flops"] * 100, row["share_of_peak_bandwidth"] * 100]
    bar = f'<td class="bar"><div style="width: {part * 100:.2f}%"></div></td>'
    texts = f"<td>{escape(row['operations'])}</td><td>{escape(row['result'])}</td>"
    return f"<tr>{bar}{numbers}{texts}{_cells(f'{value:.1f}' for value in (*rates, *shares))}</tr>"


def _total(name: str, seconds: float, report: dict[str, Any], columns: int) -> str:
    numbers = _cells([f"{seconds * 1e6:.1f}", f"{seconds / report['seconds'] * 100:.1f}", ""])
    return f'<tr><td></td>{numbers}<td colspan="{columns - 4}">{name}</td></tr>'


def _cells(values: Iterable[str]) -> str:
    return "".join(f'<td class="number">{value}</td>' for value in values)
