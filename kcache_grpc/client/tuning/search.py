"""The search for a schedule: which choices are tried, in which order, and what is taken for the best."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kcache_grpc.client.tuning.timings import ScheduleTiming
from kcache_grpc.errors import CompileFailed, CompileTimeout, UnsupportedOp
from kcache_grpc.model.schedule import GAIN, gains, with_choice
from kcache_grpc.runtime import Kernel

if TYPE_CHECKING:
    from kcache_grpc.runtime.comparison import Pace

TuneProgress = Callable[[str, float], None]

#: Names of choices, what decides most first: time may be up before all were tried.
ORDER = (
    *("contraction", "tile", "columns", "depth", "direct", "attention", "keys", "panels"),
    *("gpu_tile", "gpu_warps", "gpu_depth", "gpu_stages", "gpu_split", "gpu_keys", "gpu_columns"),
    *("gpu_row", "gpu_rows", "gpu_bytes", "gpu_items", "gpu_threads"),
    *("group", "fuse", "recompute", "stream", "vectors", "width", "unroll", "rows", "grain"),
)
_PRODUCTS = ("contraction", "window")
_BLOCKS = ("columns", "depth", "direct")
_ATTENTION = ("attention", "keys", "panels")
_LOOPS = ("stream", "vectors", "rows", "fuse", "recompute")
#: Choice -> the forms of launches on GPUs that it changes.
_FORMS = {
    **dict.fromkeys(("gpu_tile", "gpu_warps", "gpu_depth", "gpu_stages", "gpu_split"), ("contraction",)),
    **dict.fromkeys(("gpu_keys", "gpu_columns", "attention"), ("attention",)),
    **dict.fromkeys(("gpu_row", "gpu_rows"), ("rows",)),
    "gpu_bytes": ("rows", "stream"),
    "gpu_items": ("stream",),
    "gpu_threads": ("stream", "points"),
}


@dataclass(frozen=True)
class Trial:
    """A schedule that was timed: at which sizes, how fast, and how many times as fast as the default.

    ``ratio`` is the median over the rounds of a race, ``low`` and ``high`` are the quartiles.
    """

    schedule: str
    sizes: str
    nanoseconds: int
    samples: int
    ratio: float
    low: float
    high: float


@dataclass
class Search:
    """One choice after the other: each value of it with what was best so far.

    ``sizes`` are those that are timed at, ``("",)`` where all are known. ``make`` compiles a schedule;
    ``compete`` races kernels by schedule, the default first, for some seconds and gives the pace of each at
    each of the sizes; ``compare`` says how a kernel's results differ from the default's; ``keep`` is given
    timings as they are taken.
    """

    sizes: Sequence[str]
    make: Callable[[str], Awaitable[Kernel]]
    compete: Callable[[Mapping[str, Kernel], float], Awaitable[Mapping[str, Sequence[Pace]]]]
    compare: Callable[[Kernel], Awaitable[str]]
    keep: Callable[[Sequence[ScheduleTiming]], Awaitable[None]]
    report: TuneProgress
    budget: float
    timings: dict[str, list[ScheduleTiming]] = field(default_factory=dict[str, list[ScheduleTiming]])
    trials: list[Trial] = field(default_factory=list[Trial])
    rejected: dict[str, str] = field(default_factory=dict[str, str])

    async def run(self, choices: Mapping[str, Sequence[str]], known: str = "") -> None:
        """Fills ``timings``, ``trials`` and ``rejected``; begins with what is ``known`` to be good."""
        self._end = time.monotonic() + self.budget
        default = await self.make("")
        kernels, best = {"": default}, ""
        codes = {_code(default)}
        if known and (kernel := await self.variant(known)) is not None:
            best, kernels[known] = known, kernel
            codes.add(_code(kernel))
        tried = [name for name in ORDER if choices.get(name)]
        useful = [name for name in tried if _applies(name, default)]
        for place, name in enumerate(useful):
            if self._left() <= 0:
                break
            fresh: dict[str, Kernel] = {}
            for value in choices[name]:
                schedule = with_choice(best, name, value)
                kernel = None
                if schedule not in kernels and schedule not in self.rejected and self._left() > 0:
                    kernel = await self.variant(schedule)
                if kernel is not None and _code(kernel) not in codes:
                    codes.add(_code(kernel))
                    fresh[schedule] = kernel
            if fresh:
                kernels |= fresh
                racing = {schedule: kernels[schedule] for schedule in dict.fromkeys(("", best, *fresh))}
                await self._race(racing, best, max(self._left(), 0.0) / (len(useful) - place))
                best = self._best(best)
        if not self.timings:
            await self._race(
                {name: kernels[name] for name in dict.fromkeys(("", best))}, "", self.budget / 10
            )

    def _left(self) -> float:
        return self._end - time.monotonic()

    async def _race(self, kernels: Mapping[str, Kernel], base: str, seconds: float) -> None:
        self.report(f"race of {len(kernels)}", seconds)
        paces = await self.compete(kernels, seconds)
        known = self.timings.get(base)
        fresh: list[ScheduleTiming] = []
        for schedule, row in paces.items():
            if schedule in self.timings:
                continue
            self.timings[schedule] = [
                _scaled(_timing(schedule, sizes, pace), paces[base][number].nanoseconds, known, number)
                for number, (sizes, pace) in enumerate(zip(self.sizes, row, strict=True))
            ]
            fresh += self.timings[schedule]
            self.trials += [
                Trial(schedule, sizes, pace.nanoseconds, pace.samples, pace.ratio, pace.low, pace.high)
                for sizes, pace in zip(self.sizes, row, strict=True)
            ]
        await self.keep(fresh)

    def _best(self, so_far: str) -> str:
        """What is clearly better than ``so_far``, if anything is."""
        speedups = gains(
            (timing.sizes, timing.schedule, timing.nanoseconds)
            for row in self.timings.values()
            for timing in row
        )
        fastest = max(speedups, key=lambda schedule: speedups[schedule])
        return fastest if speedups[fastest] > GAIN * speedups.get(so_far, 0.0) else so_far

    async def variant(self, schedule: str) -> Kernel | None:
        """The kernel of a schedule; ``None``: it is out, and why is in ``rejected``."""
        self.report(schedule, 0.0)
        try:
            kernel = await self.make(schedule)
        except (CompileFailed, CompileTimeout, UnsupportedOp) as error:
            self.rejected[schedule] = error.message
            return None
        differs = await self.compare(kernel)
        if differs:
            self.rejected[schedule] = differs
            return None
        return kernel


def _timing(schedule: str, sizes: str, pace: Pace) -> ScheduleTiming:
    return ScheduleTiming(schedule, pace.nanoseconds, pace.samples, sizes)


def _scaled(
    timing: ScheduleTiming, base: int, first: Sequence[ScheduleTiming] | None, number: int
) -> ScheduleTiming:
    """As if timed when its base, from which it differs in one choice, was timed first.

    Machines change their pace between races.
    """
    if first is None or base == first[number].nanoseconds:
        return timing
    return replace(timing, nanoseconds=max(1, round(timing.nanoseconds * first[number].nanoseconds / base)))


def _applies(name: str, kernel: Kernel) -> bool:
    """Whether a choice can change this kernel's code."""
    on_gpu = kernel.manifest.gpu_launches
    if on_gpu:
        return name not in _FORMS or any(form in launch.ops[:1] for form in _FORMS[name] for launch in on_gpu)
    launches = kernel.manifest.launches
    ops = [set(launch.ops) for launch in launches]
    if name == "contraction":
        return any(kinds & {*_PRODUCTS} or kinds >= {"arith.mulf", "arith.addf"} for kinds in ops)
    if name in _BLOCKS:
        return any("contraction" in kinds for kinds in ops)
    if name == "tile":
        return any(kinds & {"contraction", "attention"} for kinds in ops)
    if name in _ATTENTION:
        return any("attention" in kinds for kinds in ops)
    if name in _LOOPS:
        return any(not kinds & {*_PRODUCTS, "attention"} for kinds in ops)
    if name == "grain":
        return any(launch.extent != "1" for launch in launches)
    return bool(launches)


def _code(kernel: Kernel) -> bytes:
    ref = kernel.manifest.code
    return b"" if ref is None else ref.sha256
