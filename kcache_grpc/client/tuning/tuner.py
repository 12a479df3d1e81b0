"""The tuner: schedule choices tried on this machine, and their timings kept at the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import Deadline, Io
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.client.tuning.search import Search, Trial, TuneProgress
from kcache_grpc.client.tuning.sizes import Case, Sizes, cases_of
from kcache_grpc.client.tuning.timings import ScheduleTiming, best, device_for, record, stored, subject_of
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.schedule import CHOICES, checked, choices_of, gains
from kcache_grpc.model.sizes.modes import AUTO
from kcache_grpc.runtime import Kernel

if TYPE_CHECKING:
    from kcache_grpc.runtime.comparison import Pace

__all__ = ["Choices", "Found", "Sizes", "Trial", "TuneProgress", "Tuner", "Tuning", "wanted"]

#: What ``choices`` may be: names, or the values to try of each.
Choices = Sequence[str] | Mapping[str, Sequence[str]] | None


@dataclass(frozen=True)
class Tuning:
    """What ``Client.autotune`` found."""

    #: The best schedule, ``""`` for the default: what ``Options(schedule="recorded")`` stands for now.
    schedule: str
    #: All that the service has of this program, these sizes and this machine, fastest first; of a kernel of
    #: dynamic sizes all sizes.
    timings: tuple[ScheduleTiming, ...]
    #: How many of them are new.
    recorded: int
    device: str
    #: The kernel of that schedule.
    kernel: Kernel
    #: Schedule -> why it is out: it did not compile, or gave other results.
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])
    #: What was timed now, in the order in which it was tried.
    trials: tuple[Trial, ...] = ()

    @property
    def speedup(self) -> float:
        """The default's time over that of the best schedule; over several sizes the geometric mean."""
        speedups = gains((each.sizes, each.schedule, each.nanoseconds) for each in self.timings)
        return speedups.get(self.schedule, 1.0)


def wanted(choices: Choices, gpu: bool = False) -> dict[str, tuple[str, ...]]:
    """Values to try by name, the default left out. Raises ``ArgumentError`` for what is no choice."""
    known = choices_of(gpu)
    if choices is None:
        return {name: values[1:] for name, values in known.items()}
    if isinstance(choices, str):
        raise ArgumentError(f"choices are names, or a mapping to values, not the text {choices!r}")
    if isinstance(choices, Mapping):
        options = {name: tuple(values) for name, values in choices.items()}
    else:
        options = {name: CHOICES.get(name, ("",)) for name in choices}
    for name, values in options.items():
        for value in values:
            checked(name, value)
        if name in CHOICES and name not in known:
            kind = "a GPU" if gpu else "a CPU"
            raise ArgumentError(f"kernels for {kind} have no choice {name}; they have {', '.join(known)}")
    return {name: tuple(v for v in values if v != CHOICES[name][0]) for name, values in options.items()}


@dataclass(frozen=True)
class Found:
    """What a search came to: see ``Tuning``."""

    schedule: str
    timings: tuple[ScheduleTiming, ...]
    recorded: int
    device: str
    rejected: Mapping[str, str]
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Plan:
    """What a caller wants tried: choices, sizes or arguments, seconds, and whom to tell."""

    choices: Choices
    sizes: Sizes
    inputs: Sequence[Any] | None
    budget: float
    progress: TuneProgress | None


@dataclass(frozen=True)
class Tuner:
    """What a search needs of the client: its world, its service and its way to compile ``request``."""

    io: Io
    connection: Connection
    make: Callable[[KernelRequest], Awaitable[Kernel]]
    timeout: float

    async def tune(self, request: KernelRequest, plan: Plan) -> Found:
        """Searches, records as it goes, and takes what the service then has for the best."""
        if not 0 < plan.budget < float("inf"):
            raise ArgumentError(f"budget is {plan.budget!r}; use seconds above 0", argument="budget")
        if request.shapes.mode == AUTO:
            raise ArgumentError(
                'dynamic is "auto", which is one kernel now and another later: tune with False or True',
                argument="dynamic",
            )
        if request.options.bound:
            raise ArgumentError(
                "kernels with bound arguments are not tuned: tune without", argument="options"
            )
        gpu = isinstance(request.target, GpuTarget)
        tried = wanted(plan.choices, gpu)
        await self.io.blocking(lambda: device_for(request.target))  # before a compile that nobody could time
        default = await self.make(request)
        cases = await self.io.blocking(lambda: _cases(default, plan, gpu))
        subject = subject_of(default.spec_digest, default.manifest.arg_spec, request.target, request.options)
        known = best(await stored(self.connection, subject, Deadline(self.timeout)))
        search, recorded = await self._search(request, default, cases, plan)
        await search.run(tried, known)
        timings = await stored(self.connection, subject, Deadline(self.timeout))
        while True:
            schedule = best([each for each in timings if each.schedule not in search.rejected])
            # Another's winner may be one of a compiler that is gone.
            if schedule in ("", *search.timings) or await search.variant(schedule) is not None:
                break
        return Found(schedule, timings, sum(recorded), subject.device, search.rejected, tuple(search.trials))

    async def _search(
        self, request: KernelRequest, default: Kernel, cases: Sequence[Case], plan: Plan
    ) -> tuple[Search, list[int]]:
        """The search, and a list of how many timings were new each time that it recorded some."""
        from kcache_grpc.runtime import comparison

        blocking, recorded = self.io.blocking, list[int]()
        expected = await blocking(lambda: [default(*case.arrays) for case in cases])
        strict = request.options.numerics == "strict"

        async def compete(kernels: Mapping[str, Kernel], seconds: float) -> Mapping[str, Sequence[Pace]]:
            share = seconds / len(cases)
            races = [
                await blocking(lambda c=case: comparison.race(kernels, c.arrays, share)) for case in cases
            ]
            return {name: [race[name] for race in races] for name in kernels}

        def differences(kernel: Kernel) -> str:
            for case, right in zip(cases, expected, strict=True):
                differs = comparison.difference(right, kernel(*case.arrays), kernel, strict)
                if differs:
                    return f"{differs}, at {case.sizes}" if case.sizes else differs
            return ""

        async def keep(timings: Sequence[ScheduleTiming]) -> None:
            for case in cases:
                mine = [each for each in timings if each.sizes == case.sizes]
                subject = subject_of(
                    default.spec_digest,
                    default.manifest.arg_spec,
                    request.target,
                    request.options,
                    case.sizes,
                )
                if mine:
                    recorded.append(await record(self.connection, subject, mine, Deadline(self.timeout)))

        search = Search(
            [case.sizes for case in cases],
            lambda schedule: self.make(replace(request, options=replace(request.options, schedule=schedule))),
            compete,
            lambda kernel: blocking(lambda: differences(kernel)),
            keep,
            plan.progress or _silent,
            plan.budget,
        )
        return search, recorded


def _cases(kernel: Kernel, plan: Plan, gpu: bool) -> list[Case]:
    cases = cases_of(kernel, plan.sizes, plan.inputs)
    return [_on_gpu(kernel, case) for case in cases] if gpu and plan.inputs is None else cases


def _on_gpu(kernel: Kernel, case: Case) -> Case:
    from kcache_grpc.runtime.gpu.launch_graph import to_device

    return replace(case, arrays=to_device(kernel.manifest.inputs, case.arrays))


def _silent(_what: str, _seconds: float) -> None:
    """No progress."""
