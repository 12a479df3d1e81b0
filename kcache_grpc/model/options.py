"""Compile options: all that may change the bytes of a kernel besides spec, target and toolchain."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.schedule import RECORDED, canonical_schedule
from kcache_grpc.model.target import CPU_NAMES

NUMERICS = ("strict", "default", "fast")
TUNING_MODELS = ("generic", *CPU_NAMES)
#: Inputs of a program, at most: those with higher indices cannot be bound.
MOST_INPUTS = 1 << 20


@dataclass(frozen=True)
class Options:
    """Every field but ``compatible_targets`` is an ingredient of the kernel's identity.

    ``numerics``: ``"strict"``, ``"default"`` or ``"fast"``, also part of the spec.
    ``opt_level``: 0 to 3. ``tuning``: a tuning model, ``"generic"`` or a CPU by name, such as ``"znver5"``:
    for speed there, without needing its instructions. A target that is a named CPU brings its own.
    ``schedule``: schedule choices, such as ``"grain:4,unroll:on"`` (docs/guide/tune.md), or ``"recorded"``:
    the best that ``Client.autotune`` recorded at the service for this program, these sizes and this machine.
    ``compatible_targets``: whether a stored kernel for a lower target will do if there is none for the
    target that was asked for, such as one for ``x86-64-v2`` on an ``x86-64-v4`` machine
    (docs/guide/variants.md).
    ``None``: as the client's setting says, else as the namespace does. It decides which kernel answers a
    request and never what a compile makes, so it is not in ``str()``, digests or manifests.
    ``bound``: inputs, by index from 0, whose values ``Kernel.bind`` gives before calls
    (docs/guide/bound-arguments.md).
    Raises ``ArgumentError`` for any other value.
    """

    numerics: str = "default"
    opt_level: int = 3
    tuning: str = "generic"
    schedule: str = ""
    compatible_targets: bool | None = None
    bound: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise ArgumentError(f"numerics is {self.numerics!r}; use one of {', '.join(NUMERICS)}")
        if type(self.opt_level) is not int or not 0 <= self.opt_level <= 3:
            raise ArgumentError(f"opt_level is {self.opt_level!r}; use 0, 1, 2 or 3")
        if self.tuning not in TUNING_MODELS:
            raise ArgumentError(f"tuning is {self.tuning!r}; use one of {', '.join(TUNING_MODELS)}")
        if self.compatible_targets is not None and type(self.compatible_targets) is not bool:
            raise ArgumentError(f"compatible_targets is {self.compatible_targets!r}; use True, False or None")
        if self.schedule and self.schedule != RECORDED:
            object.__setattr__(self, "schedule", canonical_schedule(self.schedule))
        if self.bound:
            object.__setattr__(self, "bound", _positions(self.bound))

    def __str__(self) -> str:
        text = f"numerics={self.numerics} opt_level={self.opt_level} tuning={self.tuning}"
        text += f" schedule={self.schedule}" if self.schedule else ""
        return f"{text} bound={_ranges(self.bound)}" if self.bound else text


def _positions(bound: Iterable[int]) -> tuple[int, ...]:
    """Distinct indices, ascending."""
    positions = tuple(bound)
    if any(type(index) is not int or not 0 <= index < MOST_INPUTS for index in positions):
        raise ArgumentError(f"bound is {positions!r}; use indices of inputs, from 0")
    return tuple(sorted(set(positions)))


def _ranges(positions: tuple[int, ...]) -> str:
    """Ascending indices as text: ``"1-3,7"``."""
    runs = itertools.groupby(enumerate(positions), lambda pair: pair[1] - pair[0])
    ends = [[index for _, index in run] for _, run in runs]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ends)
