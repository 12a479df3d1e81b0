"""Interleaved measurement: every contender once a round, so that a noisy machine is noisy for all."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: A contender runs ``count`` calls. It returns the seconds that they took when it also did something else.
Contender = Callable[[int], float | None]


@dataclass(frozen=True)
class Sample:
    """Seconds a call, one value a round."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """Smallest and largest round."""
        return min(self.seconds), max(self.seconds)


def interleave(contenders: Mapping[str, Contender], *, rounds: int, calls: int) -> dict[str, Sample]:
    """Medians over ``rounds`` of ``calls`` calls each, in a new random order every round."""
    order = list(contenders)
    shuffle = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in order}
    for name in order:
        contenders[name](max(1, calls // 10))  # warm
    for _ in range(rounds):
        shuffle.shuffle(order)
        for name in order:
            started = time.perf_counter()
            told = contenders[name](calls)
            taken = time.perf_counter() - started if told is None else told
            seconds[name].append(taken / calls)
    return {name: Sample(name, tuple(values)) for name, values in seconds.items()}


def ratio(ours: Sample, rival: Sample) -> tuple[float, float, float]:
    """Median, smallest and largest of the ratios round by round."""
    ratios = sorted(a / b for a, b in zip(ours.seconds, rival.seconds, strict=True))
    return statistics.median(ratios), ratios[0], ratios[-1]
