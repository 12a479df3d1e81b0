"""Boundaries of fused bodies in long elementwise chains: repeated operations become repeated bodies.

Fusion alone ends a body where the next operation exceeds a limit. In a long chain of equal stretches, such
as an emulated quantized operation, that happens at another operation of each stretch, and no two launches
have the same code. Therefore the least frequent operation of a stretch is a *mark*, and a body ends at a
mark if the operations up to the next one would exceed a limit. If all operations of a chain are equal, all
are marks, and bodies end where they would anyway.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.fusion.body_forms import FusibleOp
from kcache_compiler.schedule.choices import FuseLimits

#: Operations of a chain from which on its bodies end at marks.
LONG = 256
#: Operations to both sides among which a mark is one of the rarest: as many as bodies have at most.
NEAR = 64
#: Users of a value at most that may be on a chain: what more read is read from memory.
_USERS = 4


@dataclass
class _Size:
    """What operations add to a body that takes them in."""

    body: int = 0
    operands: int = 0
    expanded: int = 0

    def add(self, other: _Size) -> None:
        self.body += other.body
        self.operands += other.operands
        self.expanded += other.expanded


@dataclass
class Cuts:
    """The marks of generics that have not been fused yet, and where bodies end as they grow."""

    generics: Sequence[FusibleOp]
    limits: FuseLimits
    _place: dict[mlir.Value, int] = field(default_factory=dict[mlir.Value, int])
    #: Of operations by their results, as those are never made anew. By place: the one before on its chain,
    #: and what follows a mark up to the next.
    _before: dict[int, int] = field(default_factory=dict[int, int])
    _stretch: dict[int, _Size] = field(default_factory=dict[int, _Size])
    #: What operations became, whether their bodies begin behind a mark, and those that end one.
    _became: dict[int, FusibleOp] = field(default_factory=dict[int, "FusibleOp"])
    _begins: dict[int, bool] = field(default_factory=dict[int, bool])
    _ends: set[mlir.Value] = field(default_factory=set[mlir.Value])

    def __post_init__(self) -> None:
        self._place = {
            result: position
            for position, generic in enumerate(self.generics)
            for result in generic.op.results
        }
        for chain in self._chains():
            self._before.update(zip(chain[1:], chain, strict=False))
            self._mark(chain)

    @property
    def found(self) -> bool:
        """Whether there are long chains at all."""
        return bool(self._stretch)

    def ends(self, value: mlir.Value) -> bool:
        """Whether a body ends with this value: no other takes it in."""
        return bool(self._ends) and value in self._ends

    def fused(self, position: int, output: FusibleOp) -> None:
        """The operation at ``place`` became ``made`` with what it took in."""
        if not self.found:
            return
        before = self._before.get(position)
        begins = True
        if before is not None:
            inner = self._became[before]
            result = inner.op.results[0]
            begins = self.ends(result) if result in output.inputs else self._begins[before]
        self._became[position], self._begins[position] = output, begins
        stretch = self._stretch.get(position)
        if stretch is not None and not (begins and self._fits(output, stretch)):
            self._ends.add(output.op.results[0])

    def _fits(self, result: FusibleOp, stretch: _Size) -> bool:
        return (
            len(result.form.names) + stretch.body < self.limits.body
            and len(result.inputs) + stretch.operands + 2 <= self.limits.operands
            and (not stretch.expanded or result.form.expanded + stretch.expanded <= self.limits.expanded)
        )

    def _chains(self) -> list[list[int]]:
        """Long paths, each of operations of which the next may take in the one before."""
        nexts = [self._next(generic) for generic in self.generics]
        depth = [1] * len(nexts)
        before: dict[int, int] = {}
        for position, following in enumerate(nexts):
            if following is not None and depth[position] >= depth[following]:
                depth[following], before[following] = depth[position] + 1, position
        chains: list[list[int]] = []
        taken: set[int] = set()
        for position in sorted(range(len(depth)), key=lambda index: -depth[index]):
            if depth[position] < LONG or position in taken:
                continue
            chain = [position]
            while chain[-1] in before and before[chain[-1]] not in taken:
                chain.append(before[chain[-1]])
            taken.update(chain)
            if len(chain) >= LONG:
                chains.append(chain[::-1])
        return chains

    def _next(self, generic: FusibleOp) -> int | None:
        """The last of the operations that read its result, where they may take it in."""
        if not generic.form.parallel or len(generic.outputs) != 1:
            return None
        users = [user for user, _ in itertools.islice(mlir.uses(generic.op.results[0]), _USERS + 1)]
        positions = [next((self._place.get(result) for result in user.results), None) for user in users]
        known = [
            position
            for position in positions
            if position is not None and self.generics[position].form.parallel
        ]
        return max(known) if known and len(known) == len(users) <= _USERS else None

    def _mark(self, chain: Sequence[int]) -> None:
        names = [tuple(self.generics[position].form.names) for position in chain]
        counts = Counter(names)
        rarest = sorted(counts, key=lambda kind: (counts[kind], kind))
        ranks = {kind: rank for rank, kind in enumerate(rarest)}
        rank = [ranks[kind] for kind in names]
        marks = [
            number
            for number, own in enumerate(rank)
            if own == min(rank[max(0, number - NEAR) : number + NEAR + 1])
        ]
        for first, second in itertools.pairwise(marks):
            stretch = _Size()
            for number in range(first + 1, second + 1):
                stretch.add(self._size(chain[number], chain[number - 1]))
            self._stretch[chain[first]] = stretch

    def _size(self, position: int, without: int | None = None) -> _Size:
        """What the operation at ``place`` adds, with what only it reads, but for the one at ``without``."""
        generic = self.generics[position]
        size = _Size(len(generic.form.names) - 1, len(generic.inputs) - 1, generic.form.expanded)
        for value in generic.inputs:
            inner = self._place.get(value)
            if inner is not None and inner != without and not mlir.used_more_than_once(value):
                size.add(self._size(inner))
        return size
