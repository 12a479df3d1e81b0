"""docs/results/kernel-speed.md with the tables of a run: ``python -m benchmarks.kernels.page FILE
[--write]``.

Prints the whole page, or writes it in its place. What is not between two marks in it stays as it is.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.kernels.bars import bars
from benchmarks.kernels.summary import OURS, READY, beside_others, best_rival, by_group, ratios, share

_COPIES = tuple(f"copies, {name}, GB/s" for name in ("L1", "L2", "last level", "memory"))
_PICTURES = {
    "groups": "Geometric means by group",
    "kernels": "Every kernel against its best rival",
    "roofline": "Roofline",
}
_RIVALS = ("Inductor", "Inductor max-autotune", "JAX", "torch eager", "ONNX Runtime", "NumPy")


#: The page, and the lines between which a run stands in it.
PAGE = Path(__file__).parents[2] / "docs" / "results" / "kernel-speed.md"
BEGIN, END = "<!-- begin: written by benchmarks.kernels.page -->", "<!-- end -->"


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text())
    text = replaced(PAGE.read_text(), report)
    if sys.argv[2:] == ["--write"]:
        PAGE.write_text(text)
    else:
        print(text, end="")


def replaced(text: str, report: dict[str, Any]) -> str:
    """The page with this run in it instead of the one it has."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"the page has no lines {BEGIN!r} and {END!r}")
    return "\n".join([before + BEGIN, *stand(report), END + after])


def stand(report: dict[str, Any]) -> Iterator[str]:
    """Lines of Markdown: a run, its machine, all tables."""
    environment = report["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in environment["rivals"].items())
    yield f"\n## Run of {environment['date'][:10]}\n"
    names = ("cpu", "cores", "target", "numerics", "rounds", "budget", "clock")
    cpu, cores, target, numerics, rounds, budget, clock = (environment[name] for name in names)
    yield f"Processor: {cpu}, {cores} cores; {versions}. kcache compiles for `{target}`,"
    yield f"numerics `{numerics}`. {rounds} rounds, samples of {budget * 1e3:g} ms, clock `{clock}`."
    if environment["inductor_cache"]:
        yield "Inductor's cache was warm, so its compile times are not cold."
    yield ""
    yield from _table(
        ("threads", "multiply-adds, GFLOP/s", *_COPIES, "kernels for"), map(_machine, report["machines"])
    )
    counts = [machine["threads"] for machine in report["machines"]]
    for threads in counts:
        yield from page(report, threads)
    if len(counts) > 1:
        yield from side_by_side(report, counts[0], counts[-1])


def _machine(machine: dict[str, Any]) -> tuple[str, ...]:
    copies = (f"{value:.0f}" for value in machine["copy_gbps"].values())
    kernels = ", ".join(f"{name}: {value}" for name, value in machine["core_types"].items())
    return str(machine["threads"]), f"{machine['fma_peak_gflops']:.0f}", *copies, kernels


def page(report: dict[str, Any], threads: int) -> Iterator[str]:
    """Lines of Markdown for one number of threads."""
    cases = [case for case in report["cases"] if case["threads"] == threads]
    yield f"\n### {threads} thread{'s' if threads > 1 else ''}\n"
    if threads == 1:
        yield from (f"![{text}](../pictures/kernels-{name}-1.png)" for name, text in _PICTURES.items())
        yield ""
    late = beside_others(report["cases"], threads)
    yield f"Samples that began while other contenders' threads ran, after waiting a second: {late}.\n"
    yield from _table(("bar", "goal", "here", ""), map(_bar, bars(report, threads)))
    yield from _table(("group", "kernels", *_RIVALS, "best rival"), _groups(report, threads))
    heads = ("kernel", "us a call", "us of code alone", "of the limit", "best rival", "times faster (spread)")
    yield from _table((*heads, *_RIVALS), (_kernel(case) for case in cases if _timed(case)))
    rest = [(case["name"], _why(case)) for case in cases if not _timed(case)]
    if rest:
        yield from _table(("not timed", "why"), rest)


def side_by_side(report: dict[str, Any], few: int, many: int) -> Iterator[str]:
    """Lines of Markdown: what more threads make of each kernel, for kcache and for the best rival of each."""
    rows = {threads: _by_name(report, threads) for threads in (few, many)}
    yield f"\n### {few} and {many} threads\n"
    heads = ("kernel", f"us, {few}", f"us, {many}", "kcache gains", "JAX gains", "Inductor gains")
    best = tuple(f"against the best rival, {threads}" for threads in (few, many))
    both = [name for name in rows[few] if name in rows[many]]
    yield from _table((*heads, *best), (_both(rows[few][name], rows[many][name]) for name in both))


def _by_name(report: dict[str, Any], threads: int) -> dict[str, dict[str, Any]]:
    cases = (case for case in report["cases"] if case["threads"] == threads and _timed(case))
    return {case["name"]: case for case in cases}


def _both(few: dict[str, Any], many: dict[str, Any]) -> tuple[str, ...]:
    called = (_micros(case["contenders"][OURS]) for case in (few, many))
    gains = (_number(_gain(few, many, name)) for name in (OURS, "JAX", "Inductor"))
    return few["name"], *called, *gains, *map(_best, (few, many))


def _gain(few: dict[str, Any], many: dict[str, Any], name: str) -> float | None:
    pair = [case["contenders"].get(name, {}).get("seconds") for case in (few, many)]
    return statistics.median(pair[0]) / statistics.median(pair[1]) if all(pair) else None


def _best(case: dict[str, Any]) -> str:
    rival = best_rival(case)
    each = ratios(case, rival) if rival else None
    return f"{each[0]:.2f} ({rival})" if each else ""


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _line(heads)
    yield _line(("---",) * len(heads))
    yield from map(_line, rows)
    yield ""


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bar(bar: Any) -> tuple[str, ...]:
    value = "not measured" if bar.value is None else f"{bar.value:.2f}"
    verdict = {None: "", True: "met", False: "**missed**"}[bar.met]
    where = f"{value} ({bar.where})" if bar.where else value
    return bar.text, f"{'at least' if bar.least else 'at most'} {bar.goal:g}", where, verdict


def _groups(report: dict[str, Any], threads: int) -> Iterator[tuple[str, ...]]:
    for group, row in by_group(report["cases"], threads).items():
        means = (row["rivals"].get(name) for name in _RIVALS)
        counts = f"{row['timed']} of {row['kernels']}"
        yield group, counts, *(_number(value) for value in means), _number(row["best"])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _timed(case: dict[str, Any]) -> bool:
    return bool(case["contenders"].get(OURS, {}).get("seconds") and best_rival(case))


def _why(case: dict[str, Any]) -> str:
    return case["contenders"].get(OURS, {}).get("absent", "its process died").replace("|", "/")


def _kernel(case: dict[str, Any]) -> tuple[str, ...]:
    rival = best_rival(case)
    assert rival is not None
    each = ratios(case, rival)
    assert each is not None
    part = share(case)
    called, alone = (_micros(case["contenders"].get(name, {})) for name in (OURS, READY))
    limit = f"{part:.0%} ({case['bound']})" if part else ""
    spread = f"{each[0]:.2f} ({each[1]:.2f} to {each[2]:.2f})"
    against = (ratios(case, name) for name in _RIVALS)
    return (
        case["name"],
        called,
        alone,
        limit,
        rival,
        spread,
        *(f"{ratio[0]:.2f}" if ratio else "" for ratio in against),
    )


def _micros(row: dict[str, Any]) -> str:
    return f"{statistics.median(row['seconds']) * 1e6:,.1f}" if row.get("seconds") else ""


if __name__ == "__main__":
    main()
