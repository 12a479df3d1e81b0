"""Schedule choices as texts, and which of several measured ones to take."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from kcache_grpc.errors import ArgumentError

#: Name -> values, the default first: those of ``kcache_compiler.schedule.choices``.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "attention": ("joined", "apart"),
    "columns": ("1", "1/2", "2", "4"),
    "contraction": ("auto", "packed", "windows", "loops"),
    "depth": ("256", "128", "384", "512"),
    "direct": ("2", "0", "1", "4"),
    "fuse": ("auto", "none", "less", "more"),
    "gpu_bytes": ("16", "4", "8"),
    "gpu_columns": ("auto", "32", "64"),
    "gpu_depth": ("auto", "8", "16", "32", "64"),
    "gpu_items": ("1", "2", "4"),
    "gpu_keys": ("auto", "32", "64", "128"),
    "gpu_row": ("auto", "32", "64", "128", "256", "512", "1024"),
    "gpu_rows": ("auto", "1", "2", "4", "8"),
    "gpu_split": ("auto", "1", "2", "4", "8"),
    "gpu_stages": ("auto", "2", "3", "4", "5"),
    "gpu_threads": ("256", "128", "512"),
    "gpu_tile": ("auto", "64x64", "64x128", "128x64", "128x128", "128x256", "256x128"),
    "gpu_warps": ("auto", "4", "8", "16"),
    "grain": ("1", "1/4", "4", "16"),
    "group": ("auto", "apart", "less", "more"),
    "keys": ("256", "128", "512"),
    "launches": ("direct", "reported"),
    "panels": ("4", "1", "2", "8"),
    "recompute": ("auto", "never", "more"),
    "rows": ("4", "1", "2", "8"),
    "stream": ("auto", "2", "8", "128", "never"),
    "tile": ("auto", "4x3", "4x4", "6x4", "8x2", "8x3", "14x2"),
    "unroll": ("off", "on"),
    "vectors": ("auto", "1", "2", "4", "8"),
    "width": ("auto", "128", "256"),
}
#: Choices of kernels for CPUs and for GPUs; ``gpu_`` ones are only for GPUs, others only for CPUs.
COMMON = ("attention", "fuse", "group", "recompute")
#: Changes what a kernel says about its launches, not how they run: autotuning does not try it.
REPORTED = "launches"
#: Stands for the best schedule that the service has timings of, for the machine that asks.
RECORDED = "recorded"
#: How much faster than the default a schedule must be to be taken: less is noise.
GAIN = 1.03

_LONGEST = 256


def canonical_schedule(text: str) -> str:
    """The choices of ``text`` in order, without defaults: equal choices are equal texts.

    Raises ``ArgumentError`` for what is no choice.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"schedule is a text of at most {_LONGEST} characters, such as 'grain:4'")
    choices: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.strip().partition(":")
        if name in choices:
            raise ArgumentError(f"schedule {text!r} chooses {name} twice")
        choices[name] = checked(name, value)
    return ",".join(
        f"{name}:{choices[name]}" for name in sorted(choices) if choices[name] != CHOICES[name][0]
    )


def checked(name: str, value: str) -> str:
    """A value of a choice. Raises ``ArgumentError`` naming what there is."""
    if name not in CHOICES:
        raise ArgumentError(f"{name!r} is no schedule choice; there are {', '.join(CHOICES)}")
    if value not in CHOICES[name]:
        raise ArgumentError(f"{name} is {value!r}; use one of {', '.join(CHOICES[name])}")
    return value


def choices_of(gpu: bool) -> dict[str, tuple[str, ...]]:
    """The choices that may change the speed of kernels for GPUs, or for CPUs."""
    names = [name for name in CHOICES if name in COMMON or name.startswith("gpu_") == gpu]
    return {name: CHOICES[name] for name in names if name != REPORTED}


def with_choice(schedule: str, name: str, value: str) -> str:
    """``schedule`` but for one choice."""
    kept = [part for part in schedule.split(",") if part and not part.startswith(f"{name}:")]
    return canonical_schedule(",".join([*kept, f"{name}:{checked(name, value)}"]))


def is_known(schedule: str) -> bool:
    """Whether this version has all its choices: stored ones may be of another."""
    try:
        return canonical_schedule(schedule) == schedule
    except ArgumentError:
        return False


def winner_of_sizes(timings: Iterable[tuple[str, str, int]]) -> str:
    """Of sizes, schedule and nanoseconds the schedule to take for all sizes: see ``gains``."""
    measured = gains(timings)
    gain, schedule = min(((-gain, schedule) for schedule, gain in measured.items()), default=(0.0, ""))
    return schedule if -gain > GAIN else ""


def gains(timings: Iterable[tuple[str, str, int]]) -> dict[str, float]:
    """Schedule -> the default's time over its own, the geometric mean over sizes.

    Of the schedules that this version knows those that were measured at all sizes at which the default was:
    of others nobody knows what they lose elsewhere.
    """
    table: dict[str, dict[str, int]] = {}
    for sizes, schedule, nanoseconds in timings:
        if is_known(schedule):
            times = table.setdefault(sizes, {})
            times[schedule] = min(nanoseconds, times.get(schedule, nanoseconds))
    compared = [times for times in table.values() if "" in times]
    schedules = {schedule for times in compared for schedule in times}
    return {
        schedule: statistics.geometric_mean([times[""] / times[schedule] for times in compared])
        for schedule in schedules
        if all(schedule in times for times in compared)
    }
