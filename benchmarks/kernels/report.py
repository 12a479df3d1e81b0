"""What a run prints: a line a kernel as it comes, and geometric means at the end."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.kernels.bars import bars
from benchmarks.kernels.summary import (
    BY_HAND,
    OURS,
    READY,
    beside_others,
    best_rival,
    by_group,
    ratios,
    rivals_of,
    share,
)


def print_machine(machine: dict[str, Any]) -> None:
    """The limits that shares are of."""
    copies = ", ".join(f"{name} {value:.0f}" for name, value in machine["copy_gbps"].items())
    kernels = ", ".join(f"{name}: {value}" for name, value in machine["core_types"].items())
    print(
        f"\n{machine['threads']} thread(s): {machine['fma_peak_gflops']:.0f} GFLOP/s; copies, GB/s: {copies}"
    )
    print(f"core types: {kernels}")
    print(
        "times: a call of ours (of our code alone); rivals: how many times faster we are (low to high)",
        flush=True,
    )


def print_compiled(case: dict[str, Any], place: str) -> None:
    """What Inductor compiled of one kernel."""
    rows = case["contenders"]
    told = [f"{name} {row['compile_s']:.1f} s" for name, row in rows.items() if "compile_s" in row]
    print(f"{case['name']:34} {', '.join(told) or 'its process died'} {place}", flush=True)


def print_case(case: dict[str, Any], place: str = "") -> None:
    """One kernel; ``place`` is how far the run is."""
    if case.get("died"):
        print(f"{case['name']}: its process died", flush=True)
        return
    rows = case["contenders"]
    head = f"{case['name']:34}"
    if OURS in rows and rows[OURS].get("seconds"):
        part = share(case)
        head += f" {_time(rows[OURS])} ({_time(rows[READY]) if rows[READY].get('seconds') else '?'})"
        head += f" {part:4.0%} of {case['bound']}" if part else ""
        if rows[OURS].get("compile_s"):
            head += f", {_compiled(rows[OURS])}, {rows[OURS]['launches']} launches"
    print(f"{head}  {place}".rstrip())
    for name in rivals_of(case):
        print(f"    {_against(case, name)}{' <- best' if name == best_rival(case) else ''}")
    if each := ratios(case, BY_HAND, READY):
        print(f"    {BY_HAND:24} {_time(rows[BY_HAND])}  our code alone {1 / each[0]:.2f}x its time")
    for name, row in rows.items():
        if "absent" in row and not (name == BY_HAND or row["absent"].startswith(("not in", "nothing"))):
            print(f"    {name:24} {row['absent']}")
    print(end="", flush=True)


def _against(case: dict[str, Any], name: str) -> str:
    row = case["contenders"][name]
    each = ratios(case, name)
    compiled = f", {_compiled(row)}" if row.get("compile_s") else ""
    faster = f"{each[0]:6.2f}x ({each[1]:.2f} to {each[2]:.2f})" if each else "   -"
    return f"{name:24} {_time(row)} {faster}{compiled}"


def _compiled(row: dict[str, Any]) -> str:
    processors = row.get("compile_cpu_s")
    busy = f" ({processors * 1e3:.0f} of processors)" if processors is not None else ""
    return f"compiled in {row['compile_s'] * 1e3:.0f} ms{busy}"


def _time(row: dict[str, Any]) -> str:
    seconds = statistics.median(row["seconds"])
    return f"{seconds * 1e6:9.1f} us" if seconds < 0.01 else f"{seconds * 1e3:9.1f} ms"


def print_summary(report: dict[str, Any]) -> None:
    """Geometric means by group, for each number of threads."""
    for machine in report["machines"]:
        threads = machine["threads"]
        print(f"\n{threads} thread(s): times faster, geometric mean; the worst against the best rival")
        for group, row in by_group(report["cases"], threads).items():
            means = ", ".join(f"{name} {value:.2f}" for name, value in row["rivals"].items())
            worst = "{}: {:.2f}".format(*row["slowest"]) if row["slowest"] else "-"
            best = f"{row['best']:.2f}" if row["best"] else "-"
            print(f"{group:22} {row['timed']} of {row['kernels']}: best rival {best}; {means}; worst {worst}")
        print(f"turns beside other contenders' threads: {beside_others(report['cases'], threads)}")
        print("\nbars:")
        for bar in bars(report, threads):
            value = "not measured" if bar.value is None else f"{bar.value:.2f}"
            verdict = {None: "", True: "met", False: "MISSED"}[bar.met]
            sign = ">=" if bar.least else "<="
            print(f"  {bar.text}: {value} ({sign} {bar.goal:g}) {verdict} {bar.where}".rstrip())
