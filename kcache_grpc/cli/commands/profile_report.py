"""The measurements of ``kcache profile`` as a JSON value and as a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kcache_grpc.cli import output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kcache_grpc import Kernel
    from kcache_grpc.runtime.launch_times import CallTimes, LaunchTime
    from kcache_grpc.runtime.peaks import Peaks

#: Operations that most of a launch's time goes to where it has one.
_MAIN = ("stablehlo.convolution", "stablehlo.dot_general", "stablehlo.dot")
_RESULT = re.compile(r"-> \(?tensor<([^>]*)>")
_DIMS = re.compile(r"^((?:(?:\d+|\?)x)*)(.*)$")


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
