"""Timings of schedule choices: what a tuner measured. Part of the storage contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from kcache_grpc.storage.records import Namespace


@dataclass(frozen=True)
class Timing:
    """One choice, measured.

    ``subject`` is the digest of what is tuned: spec, target and options, without the toolchain, so that a
    timing outlives a compiler that makes the same schedules. ``shape`` is the arg spec with its sizes, or
    only the sizes of a subject with dynamic sizes, ``config`` the choice as canonical text, ``device`` the
    machine that ran it: CPU and threads. ``nanoseconds`` is the median of ``samples`` calls.
    """

    subject: bytes
    shape: str
    config: str
    device: str
    nanoseconds: int
    samples: int = 1


@dataclass(frozen=True)
class TimingRecord:
    """A stored timing."""

    timing: Timing
    created_at: int


class AutotuneStore(ABC):
    """Timings of a namespace. They span epochs: a timing is a hint, never code."""

    #: About as many a namespace keeps: whoever adds more removes the oldest, and this share of all beyond,
    #: so that they are seldom looked for.
    most_timings = 100_000
    spare = 100

    @abstractmethod
    def add_timings(self, namespace: Namespace, batch: Sequence[Timing]) -> int:
        """Insert, all in one transaction; how many were new.

        A timing is never overwritten: of the same subject, shape, config and device the first stays. So a
        choice that is added later discards none, and two tuners agree. Above ``most_timings`` the oldest go.
        """

    @abstractmethod
    def list_timings(
        self, namespace: Namespace, subject: bytes, shape: str, device: str
    ) -> tuple[TimingRecord, ...]:
        """All choices measured there, fastest first, of equals the older first."""

    @abstractmethod
    def list_shapes(self, namespace: Namespace, subject: bytes, device: str) -> tuple[TimingRecord, ...]:
        """The same of all shapes, in the order of these."""

    @abstractmethod
    def list_subject(self, namespace: Namespace, subject: bytes) -> tuple[TimingRecord, ...]:
        """All timings of a subject, by shape, device and choice."""

    def _too_many(self, count: int) -> int:
        """How many of this many are to go."""
        return count - self.most_timings + self.most_timings // self.spare if count > self.most_timings else 0
