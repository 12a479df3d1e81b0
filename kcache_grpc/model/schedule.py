"""Schedule choices as texts, and which of several measured ones to take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kcache_grpc.errors import ArgumentError

#: Name -> values, the default first: those of ``kcache_compiler.schedule.choices``.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "grain": ("1", "1/4", "4", "16"),
    "tile": ("auto", "4x4", "6x4", "8x2", "8x3", "14x2"),
    "unroll": ("off", "on"),
}
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
    made: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.strip().partition(":")
        if name in made:
            raise ArgumentError(f"schedule {text!r} chooses {name} twice")
        made[name] = checked(name, value)
    return ",".join(f"{name}:{made[name]}" for name in sorted(made) if made[name] != CHOICES[name][0])


def checked(name: str, value: str) -> str:
    """A value of a choice. Raises ``ArgumentError`` naming what there is."""
    if name not in CHOICES:
        raise ArgumentError(f"{name!r} is no schedule choice; there are {', '.join(CHOICES)}")
    if value not in CHOICES[name]:
        raise ArgumentError(f"{name} is {value!r}; use one of {', '.join(CHOICES[name])}")
    return value


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


def winner(timings: Iterable[tuple[str, int]]) -> str:
    """Of pairs of schedule and nanoseconds the one to take: the fastest, if it clearly beats the default.

    Empty, the default, where the default was not measured: there is nothing to compare with.
    """
    known = [(nanoseconds, schedule) for schedule, nanoseconds in timings if is_known(schedule)]
    default = min((nanoseconds for nanoseconds, schedule in known if not schedule), default=0)
    fastest, schedule = min(known, default=(0, ""))
    return schedule if fastest * GAIN < default else ""
