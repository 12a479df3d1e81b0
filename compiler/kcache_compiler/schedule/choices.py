"""Schedule choices: what a tuner may try. They change how fast a kernel is, never what it may compute.

A choice is part of the compile options as canonical text, ``grain:4,unroll:on``: names in order, values that
differ from the default only. So a choice that is added later changes no kernel that does not make it.
Results stay within the numerics class: ``strict`` ones are the same bits under every choice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kcache_compiler.codegen.formula import Formula, apply, mul
from kcache_compiler.errors import CompileFailed

#: Name -> values, the default first.
#:
#: ``grain``: work of the least slice that a thread is given, in multiples of the usual. ``tile``: rows times
#: vectors of the register tile of contractions, where the target's registers hold it. ``unroll``: loops of
#: known length are unrolled before LLVM looks for vectors.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "grain": ("1", "1/4", "4", "16"),
    "tile": ("auto", "4x4", "6x4", "8x2", "8x3", "14x2"),
    "unroll": ("off", "on"),
}


@dataclass(frozen=True)
class Choices:
    """One value for every name."""

    grain: str = "1"
    tile: str = "auto"
    unroll: str = "off"

    @property
    def unrolls(self) -> bool:
        return self.unroll == "on"

    @property
    def register_tile(self) -> tuple[int, int] | None:
        """Rows and vectors, or None for the target's own."""
        if self.tile == "auto":
            return None
        rows, vectors = self.tile.split("x")
        return int(rows), int(vectors)

    def slice_of(self, grain: Formula) -> Formula:
        """The least slice that stands for ``grain``."""
        if self.grain.startswith("1/"):
            return apply("ceildiv", grain, int(self.grain[2:]))
        return mul(grain, int(self.grain))


@functools.lru_cache(maxsize=256)
def parse_choices(text: str) -> Choices:
    """The choices of canonical text; raises ``CompileFailed`` for a name or value that is none."""
    given: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition(":")
        if value not in CHOICES.get(name, ()):
            raise CompileFailed("schedule", f"{part!r} is no schedule choice of this compiler")
        given[name] = value
    make: Callable[..., Choices] = Choices
    return make(**given)
