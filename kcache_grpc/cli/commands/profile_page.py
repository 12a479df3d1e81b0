"""The page of ``kcache profile --html``: one file without scripts and without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from kcache_grpc.cli.commands.profile_report import label

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
            *(_row(row, row["seconds"] / longest) for row in rows),
            "</tbody>\n<tfoot>",
            _total("between launches", report["between_seconds"], report, len(columns)),
            _total("call", report["seconds"], report, len(columns)),
            "</tfoot>\n</table>",
        ]
    )


def _row(row: dict[str, Any], part: float) -> str:
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
