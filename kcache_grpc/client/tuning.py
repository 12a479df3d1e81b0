"""The tuner: schedule choices tried on this machine, and their timings kept at the service."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kcache_grpc.client.clock import Deadline
from kcache_grpc.client.connection import Connection
from kcache_grpc.client.timings import ScheduleTiming, is_static, record, stored, subject_of
from kcache_grpc.client.trust import Ask
from kcache_grpc.client.wire import Io
from kcache_grpc.errors import ArgumentError, CompileFailed, UnsupportedOp
from kcache_grpc.model.schedule import CHOICES, GAIN, checked, winner, with_choice
from kcache_grpc.runtime import Kernel

TuneProgress = Callable[[str, float], None]
#: What ``choices`` may be: names, or the values to try of each.
Choices = Sequence[str] | Mapping[str, Sequence[str]] | None


@dataclass(frozen=True)
class Tuning:
    """What ``Client.autotune`` found."""

    #: The best schedule, ``""`` for the default: what ``Options(schedule="recorded")`` stands for now.
    schedule: str
    #: All that the service has of this program, these sizes and this machine, fastest first.
    timings: tuple[ScheduleTiming, ...]
    #: How many of them are new.
    recorded: int
    device: str
    #: The kernel of that schedule.
    kernel: Kernel
    #: Schedule -> why it is out: it did not compile, or gave other results.
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def speedup(self) -> float:
        """The default's time over that of the best schedule."""
        times = {each.schedule: each.nanoseconds for each in self.timings}
        return times[""] / times[self.schedule] if "" in times else 1.0


def wanted(choices: Choices) -> dict[str, tuple[str, ...]]:
    """Values to try by name, the default left out. Raises ``ArgumentError`` for what is no choice."""
    if choices is None:
        return {name: values[1:] for name, values in CHOICES.items()}
    if isinstance(choices, str):
        raise ArgumentError(f"choices are names, or a mapping to values, not the text {choices!r}")
    if isinstance(choices, Mapping):
        given = {name: tuple(values) for name, values in choices.items()}
    else:
        given = {name: CHOICES.get(name, ("",)) for name in choices}
    for name, values in given.items():
        for value in values:
            checked(name, value)
    return {name: tuple(v for v in values if v != CHOICES[name][0]) for name, values in given.items()}


@dataclass
class Search:
    """One choice after the other: each value of it with what was best so far.

    ``make`` compiles a schedule; ``compete`` races kernels by schedule for some seconds and gives
    nanoseconds and samples; ``compare`` says how a kernel's results differ from the default's.
    """

    make: Callable[[str], Awaitable[Kernel]]
    compete: Callable[[Mapping[str, Kernel], float], Awaitable[Mapping[str, tuple[int, int]]]]
    compare: Callable[[Kernel], Awaitable[str]]
    report: TuneProgress
    budget: float

    async def run(
        self, choices: Mapping[str, Sequence[str]]
    ) -> tuple[dict[str, ScheduleTiming], dict[str, str]]:
        """Timings by schedule, those of the default among them, and what is out."""
        began = time.monotonic()
        default = await self.make("")
        useful = {name: values for name, values in choices.items() if values and _applies(name, default)}
        timings: dict[str, ScheduleTiming] = {}
        rejected: dict[str, str] = {}
        best, kernels = "", {"": default}
        codes = {_code(default)}
        for place, (name, values) in enumerate(useful.items()):
            left = self.budget - (time.monotonic() - began)
            if left <= 0:
                break
            fresh: dict[str, Kernel] = {}
            for value in values:
                schedule = with_choice(best, name, value)
                kernel = await self.variant(schedule, rejected)
                if kernel is not None and _code(kernel) not in codes:
                    codes.add(_code(kernel))
                    fresh[schedule] = kernel
            kernels |= fresh
            field = {schedule: kernels[schedule] for schedule in dict.fromkeys(("", best, *fresh))}
            left = self.budget - (time.monotonic() - began)
            paces = await self._race(field, max(left, 0.0) / (len(useful) - place))
            for schedule, pace in paces.items():
                timings.setdefault(schedule, self._scaled(pace, paces[best], timings.get(best)))
            fastest = min(timings.values(), key=lambda timing: timing.nanoseconds)
            best = fastest.schedule if fastest.nanoseconds * GAIN < timings[best].nanoseconds else best
        if not timings:
            timings = await self._race({"": default}, self.budget / 10)
        return timings, rejected

    async def _race(self, kernels: Mapping[str, Kernel], seconds: float) -> dict[str, ScheduleTiming]:
        self.report(f"race of {len(kernels)}", seconds)
        paces = await self.compete(kernels, seconds)
        return {name: ScheduleTiming(name, *pace) for name, pace in paces.items()}

    async def variant(self, schedule: str, rejected: dict[str, str]) -> Kernel | None:
        """The kernel of a schedule; ``None``: it is out, and why is in ``rejected``."""
        self.report(schedule, 0.0)
        try:
            kernel = await self.make(schedule)
        except (CompileFailed, UnsupportedOp) as error:
            rejected[schedule] = error.message
            return None
        differs = await self.compare(kernel)
        if differs:
            rejected[schedule] = differs
            return None
        return kernel

    @staticmethod
    def _scaled(pace: ScheduleTiming, base: ScheduleTiming, first: ScheduleTiming | None) -> ScheduleTiming:
        """As if timed when its base, from which it differs in one choice, was timed first.

        Machines change their pace between races.
        """
        if first is None or base.nanoseconds == first.nanoseconds:
            return pace
        scaled = round(pace.nanoseconds * first.nanoseconds / base.nanoseconds)
        return replace(pace, nanoseconds=max(1, scaled))


def _applies(name: str, kernel: Kernel) -> bool:
    """Whether a choice can change this kernel's code."""
    launches = kernel.manifest.launches
    if name == "tile":
        return any("contraction" in launch.ops for launch in launches)
    if name == "grain":
        return any(launch.extent != "1" for launch in launches)
    return bool(launches)


def _code(kernel: Kernel) -> bytes:
    ref = kernel.manifest.code
    return b"" if ref is None else ref.sha256


@dataclass(frozen=True)
class Found:
    """What a search came to: see ``Tuning``."""

    schedule: str
    timings: tuple[ScheduleTiming, ...]
    recorded: int
    device: str
    rejected: Mapping[str, str]


@dataclass(frozen=True)
class Tuner:
    """What a search needs of the client: its world, its service and its way to compile ``ask``."""

    io: Io
    connection: Connection
    make: Callable[[Ask], Awaitable[Kernel]]
    timeout: float

    async def tune(
        self,
        ask: Ask,
        choices: Choices,
        inputs: Sequence[Any] | None,
        budget: float,
        progress: TuneProgress | None,
    ) -> Found:
        """Searches, records, and takes what the service then has for the best."""
        from kcache_grpc.runtime import racing

        if not 0 < budget < float("inf"):
            raise ArgumentError(f"budget is {budget!r}; use seconds above 0", argument="budget")
        tried = wanted(choices)
        default = await self.make(ask)
        if not is_static(default.binding):
            raise ArgumentError("the program leaves sizes open; give it sizes: timings are of some")
        blocking = self.io.blocking
        arrays = await blocking(lambda: racing.drawn(default) if inputs is None else list(inputs))
        expected = await blocking(lambda: default(*arrays))
        strict = ask.options.numerics == "strict"

        async def compete(kernels: Mapping[str, Kernel], seconds: float) -> Mapping[str, tuple[int, int]]:
            paces = await blocking(lambda: racing.race(kernels, arrays, seconds))
            return {name: (pace.nanoseconds, pace.samples) for name, pace in paces.items()}

        search = Search(
            lambda schedule: self.make(replace(ask, options=replace(ask.options, schedule=schedule))),
            compete,
            lambda kernel: blocking(lambda: racing.difference(expected, kernel(*arrays), kernel, strict)),
            progress or _silent,
            budget,
        )
        timings, rejected = await search.run(tried)
        subject = subject_of(default.spec_digest, default.binding.arg_spec, ask.target, ask.options)
        new = await record(self.connection, subject, list(timings.values()), Deadline(self.timeout))
        known = await stored(self.connection, subject, Deadline(self.timeout))
        while True:
            best = winner(
                (each.schedule, each.nanoseconds) for each in known if each.schedule not in rejected
            )
            # Another's winner may be one of a compiler that is gone.
            if best in ("", *timings) or await search.variant(best, rejected) is not None:
                break
        return Found(best, known, new, subject.device, rejected)


def _silent(_what: str, _seconds: float) -> None:
    """No progress."""
