"""The bars that kernels are held to, and where a run stands against each."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.kernels.summary import BY_HAND, OURS, READY, best_rival, geometric_mean, ratios, share

STREAMING = ("pointwise", "rows", "columns")
INDUCTOR, JAX = "Inductor", "JAX"
BLAS = ("torch eager", "NumPy")
#: Bytes that no last-level cache holds, nor a second-level one any more.
ABOVE_CACHES, INSIDE_L2 = 64 << 20, 1 << 20
Cases = list[dict[str, Any]]


@dataclass(frozen=True)
class Bar:
    """``value`` is ``None`` where the run had nothing to measure it by. ``least`` tells which way is good."""

    text: str
    value: float | None
    goal: float
    least: bool = True
    where: str = ""

    @property
    def met(self) -> bool | None:
        """Whether it holds."""
        if self.value is None:
            return None
        return self.value >= self.goal if self.least else self.value <= self.goal


def bars(report: dict[str, Any], threads: int) -> list[Bar]:
    """All of them, for a number of threads."""
    cases = [case for case in report["cases"] if case["threads"] == threads and "group" in case]
    return [
        *_streaming(cases),
        *_matmul(cases),
        *_graphs(cases),
        *_compiling(cases, report.get("environment", {})),
        *_threads(report["cases"], cases, threads),
    ]


def _of(cases: Cases, *groups: str) -> Cases:
    return [case for case in cases if case["group"] in groups]


def _against(cases: Cases, *rivals: str) -> dict[str, float]:
    """By kernel, times faster than the best of these rivals; than the best of all where none is named."""
    best: dict[str, float] = {}
    for case in cases:
        names = rivals or tuple(filter(None, [best_rival(case)]))
        each = [value[0] for name in names if (value := ratios(case, name))]
        if each:
            best[case["name"]] = min(each)
    return best


def _mean(text: str, values: dict[str, float], goal: float) -> Bar:
    return Bar(f"{text}, geometric mean of {len(values)}", geometric_mean(values.values()), goal)


def _worst(text: str, values: dict[str, float], goal: float, *, least: bool = True) -> Bar:
    choose = min if least else max
    name = choose(values, key=lambda each: values[each], default=None)
    return Bar(text, None if name is None else values[name], goal, least, name or "")


def _shares(cases: Iterable[dict[str, Any]]) -> dict[str, float]:
    return {case["name"]: value for case in cases if (value := share(case)) is not None}


def _streaming(cases: Cases) -> list[Bar]:
    fused = _of(cases, *STREAMING)
    hand = {case["name"]: 1 / each[0] for case in fused if (each := ratios(case, BY_HAND, READY))}
    small = {case["name"] for case in fused if case["traffic"] <= INSIDE_L2}
    return [
        _mean("fused kernels against Inductor", _against(fused, INDUCTOR), 2.0),
        _mean("fused kernels against JAX", _against(fused, JAX), 1.5),
        _worst("fused kernels against the best rival, worst", _against(fused), 0.9),
        _worst(
            "above the caches: share of a copy's bandwidth in the same rounds, worst",
            _shares(case for case in fused if case["traffic"] >= ABOVE_CACHES),
            0.85,
        ),
        _worst(
            "inside L2: our code's time against a loop by hand, worst",
            {name: value for name, value in hand.items() if name in small},
            1.3,
            least=False,
        ),
    ]


def _matmul(cases: Cases) -> list[Bar]:
    plain = [case for case in _of(cases, "matmul") if case["name"].startswith("matmul/")]
    large = [case for case in plain if min(map(int, case["name"].partition("/")[2].split("x"))) >= 512]
    seconds = {
        case["name"]: statistics.median(case["contenders"][READY]["seconds"])
        for case in _of(cases, "matmul", "matmul bf16")
        if case["contenders"].get(READY, {}).get("seconds")
    }
    wide, narrow = seconds.get("matmul/1024x1024x1024"), seconds.get("matmul_bf16/1024")
    return [
        _mean("f32 matmul against the best of MKL and OpenBLAS", _against(plain, *BLAS), 1.0),
        _worst("f32 matmul against the best of MKL and OpenBLAS, worst", _against(plain, *BLAS), 0.85),
        _worst("f32 matmul from 512: share of the peak, worst", _shares(large), 0.85),
        _worst(
            "matmul with epilogue against the best rival, worst",
            _against(_of(cases, "matmul with epilogue")),
            1.15,
        ),
        Bar("bf16 matmul of 1024 against our f32", wide / narrow if wide and narrow else None, 1.5),
    ]


def _graphs(cases: Cases) -> list[Bar]:
    whole = _of(cases, "whole graphs")
    return [
        _mean("whole graphs against Inductor", _against(whole, INDUCTOR), 1.3),
        _mean("whole graphs against JAX", _against(whole, JAX), 1.2),
    ]


def _compiling(cases: Cases, environment: dict[str, Any]) -> list[Bar]:
    """By the clock that the run went by; nothing of Inductor where it had compiled all of it before."""
    cold, clock = not environment.get("inductor_cache"), environment.get("clock", "wall")
    ours = _compile_seconds(_of(cases, *STREAMING), OURS, clock)
    block = [case for case in cases if case["name"] == "transformer_block/2x128x512"]
    [mine, xla, inductor] = (
        next(iter(_compile_seconds(block, name, clock).values()), None) for name in (OURS, JAX, INDUCTOR)
    )
    single = statistics.median(ours.values()) * 1e3 if ours else None
    return [
        Bar(
            f"cold compile of a fused kernel, median of {len(ours)}, ms of {clock}", single, 150, least=False
        ),
        Bar(
            "transformer block: our compile against JAX's",
            mine / xla if mine and xla else None,
            3,
            least=False,
        ),
        Bar(
            "transformer block: a cold torch.compile against ours",
            inductor / mine if mine and inductor and cold else None,
            20,
        ),
    ]


def _compile_seconds(cases: Cases, name: str, clock: str) -> dict[str, float]:
    field = "compile_cpu_s" if clock == "cpu" else "compile_s"
    rows = {case["name"]: case["contenders"].get(name, {}) for case in cases}
    return {kernel: row[field] for kernel, row in rows.items() if row.get(field)}


def _threads(every: Cases, cases: Cases, threads: int) -> list[Bar]:
    """More threads than one against one, where arithmetic is the limit and there is enough of it."""
    if threads < 2:
        return []
    alone = {case["name"]: case for case in every if case["threads"] == 1}
    gains: dict[str, float] = {}
    machine: list[float] = []
    for case in cases:
        single = alone.get(case["name"])
        serial, more = (_seconds(each) for each in (single, case))
        if case["bound"] == "compute" and single and serial and more and serial > 1e-3:
            gains[case["name"]] = serial / more
            if case.get("beat") and single.get("beat"):
                pair = (statistics.median(each["beat"]) for each in (single, case))
                machine.append(threads * next(pair) / next(pair))
    text = f"{threads} threads against one, kernels that compute for over 1 ms"
    if machine:
        text += f" (multiply-adds in the same rounds: {geometric_mean(machine):.2f})"
    return [_mean(text, gains, 0.85 * threads), _worst(f"{text}, worst", gains, 0.85 * threads)]


def _seconds(case: dict[str, Any] | None) -> float | None:
    """Of our code alone."""
    seconds = case["contenders"].get(READY, {}).get("seconds") if case else None
    return statistics.median(seconds) if seconds else None
