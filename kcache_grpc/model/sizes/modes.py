"""For which sizes a kernel is wanted: the mode, and which axes are symbols within which bounds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.sizes.guard import MAX_SIZE, Sizes, sizes

STATIC, DYNAMIC, AUTO = "static", "dynamic", "auto"
MODES = (STATIC, DYNAMIC, AUTO)

#: Most axes that requirements may name, and most programs that may be their evidence.
MAX_AXES, MAX_EVIDENCE = 4096, 64


@dataclass(frozen=True)
class Dim:
    """Which sizes an axis may have: from ``min`` to ``max``, and multiples of ``multiple_of``.

    Raises ``ArgumentError`` for bounds that are no sizes, or that no size meets.
    """

    min: int = 0
    max: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        for name, value, least in (
            ("min", self.min, 0),
            ("max", self.max, 0),
            ("multiple_of", self.multiple_of, 1),
        ):
            if value is None and name == "max":
                continue
            if type(value) is not int or not least <= value <= MAX_SIZE:
                raise ArgumentError(f"{name} of a Dim is {value!r}; use an int from {least}")
        if sizes(self.min, self._high, self.multiple_of) is None:
            raise ArgumentError(f"no size meets {self}")

    @property
    def allowed(self) -> Sizes:
        """The sizes."""
        values = sizes(self.min, self._high, self.multiple_of)
        assert values is not None
        return values

    @property
    def _high(self) -> int:
        return MAX_SIZE if self.max is None else self.max


@dataclass(frozen=True, order=True)
class Axis:
    """``axis`` of argument ``arg``, both from 0."""

    arg: int
    axis: int

    def __str__(self) -> str:
        return f"axis {self.axis} of argument {self.arg}"


@dataclass(frozen=True)
class ShapeRequirements:
    """What a caller requires of the sizes of a kernel.

    ``mode``: one of ``MODES``. ``axes``: which axes are symbols, sorted, and their bounds; empty: all that
    may be. ``evidence``: digests of programs that are the same computation at other sizes. ``assume``: a
    dynamic kernel needs no evidence. Raises ``ArgumentError`` for an axis that is named twice, or for axes or
    evidence of a static kernel.
    """

    mode: str = STATIC
    axes: tuple[tuple[Axis, Dim], ...] = ()
    evidence: tuple[bytes, ...] = ()
    assume: bool = False

    def __post_init__(self) -> None:
        """Raise ``ArgumentError`` for fields that contradict each other or exceed limits."""
        if self.mode not in MODES:
            raise ArgumentError(f"the mode {self.mode!r} is none of {', '.join(MODES)}")
        if self.mode == STATIC and self.axes:
            raise ArgumentError(
                "symbols say which sizes may change, and this kernel is for one size only: "
                'pass dynamic=True or dynamic="auto"'
            )
        if self.mode == STATIC and self.evidence:
            raise ArgumentError(
                "several programs are evidence for a kernel for other sizes, and this one is for the sizes "
                'of the first only: pass dynamic=True or dynamic="auto", or compile_many for one of each',
                argument="dynamic",
            )
        if self.assume and self.mode != DYNAMIC:
            raise ArgumentError("only a dynamic kernel is compiled without evidence", argument="dynamic")
        if len(self.evidence) > MAX_EVIDENCE:
            raise ArgumentError(f"{len(self.evidence)} programs of evidence, more than {MAX_EVIDENCE}")
        if any(len(digest) != 32 for digest in self.evidence):
            raise ArgumentError("a program digest of the evidence has not 32 bytes", field="shapes.evidence")
        if len(self.axes) > MAX_AXES:
            raise ArgumentError(f"symbols name {len(self.axes)} axes, more than {MAX_AXES}")
        ordered = sorted(self.axes, key=lambda pair: pair[0])
        for (name, _), (following, _) in itertools.pairwise(ordered):
            if name == following:
                raise ArgumentError(f"symbols name {name} twice")
        object.__setattr__(self, "axes", tuple(ordered))

    def __str__(self) -> str:
        """The canonical text: equal requirements have equal texts."""
        bounds = [
            f"{at.arg}.{at.axis}:{dim.allowed.low}:{dim.allowed.high}:{dim.allowed.step}"
            for at, dim in self.axes
        ]
        mode = f"{self.mode}!" if self.assume else self.mode
        return " ".join([mode, *bounds, *(f"evidence:{digest.hex()}" for digest in self.evidence)])


EXACT = ShapeRequirements()
