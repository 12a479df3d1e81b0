"""Compile options: all that may change the bytes of a kernel besides spec, target and toolchain."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.schedule import RECORDED, canonical_schedule
from kcache_grpc.model.target import CPU_NAMES

NUMERICS = ("strict", "default", "fast")
TUNING_MODELS = ("generic", *CPU_NAMES)


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
    Raises ``ArgumentError`` for any other value.
    """

    numerics: str = "default"
    opt_level: int = 3
    tuning: str = "generic"
    schedule: str = ""
    compatible_targets: bool | None = None

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

    def __str__(self) -> str:
        text = f"numerics={self.numerics} opt_level={self.opt_level} tuning={self.tuning}"
        return f"{text} schedule={self.schedule}" if self.schedule else text
