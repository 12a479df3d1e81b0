"""What a shape rule sees of an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.mlir.context import Native
from kcache_compiler.spec.erasure.solver import Solver
from kcache_compiler.spec.graph.nodes import DYNAMIC, ValueType
from kcache_compiler.spec.importers.flatten import Block, Entry

Dims = tuple[int, ...]


class Step:
    """One operation as a rule sees it: dims of operands as used here, of results, of its regions."""

    __slots__ = (
        "blocks",
        "entry",
        "loose_in",
        "loose_out",
        "operands",
        "results",
        "solver",
        "types",
    )

    def __init__(
        self,
        solver: Solver,
        entry: Entry,
        results: Sequence[Dims],
        loose_in: Sequence[frozenset[int]],
        types: Sequence[ValueType],
        blocks: Sequence[tuple[Block, Sequence[Dims], Sequence[Dims]]],
    ) -> None:
        self.solver = solver
        self.entry = entry
        self.operands: Sequence[Dims] = entry.dims
        self.results = results
        #: Loose dims of the operands; the rule fills in those of the results.
        self.loose_in = loose_in
        self.loose_out: list[frozenset[int]] = [frozenset()] * len(results)
        #: Regions with the dims of their parameters and of what they return.
        self.blocks = blocks
        self.types = types

    @property
    def attributes(self) -> Native:
        """The attributes of the operation."""
        return self.entry.operation.attributes

    @property
    def plain(self) -> bool:
        """Whether all elements are plain, so that views may show the values."""
        return not any("!" in t.element or "#" in t.element for t in self.types)

    def ints(self, name: str) -> list[int]:
        """Return an attribute that is a list of integers; empty when it is absent."""
        try:
            return list(self.attributes[name])
        except KeyError:
            return []

    def pin(self, *shapes: Dims) -> None:
        """Let dims keep their sizes."""
        for dims in shapes:
            self.solver.pin(*dims)

    def same(self, a: int, b: int) -> None:
        """Say that two dims agree."""
        self.solver.union(a, b)

    def match(self, a: Dims, b: Dims) -> None:
        """Say that two shapes agree."""
        union = self.solver.union
        for x, y in zip(a, b, strict=True):
            union(x, y)

    def same_or_pinned(self, a: int, b: int) -> None:
        """Say that two dims agree where their sizes do: the whole axis is taken; else both keep theirs."""
        if self.solver.size(a) == self.solver.size(b) != DYNAMIC:
            self.solver.union(a, b)
        else:
            self.solver.pin(a, b)


Rule = Callable[[Step], None]


def pinned(step: Step) -> None:
    """Everything keeps its sizes: the rule of operations that have no rule."""
    step.pin(*step.operands, *step.results)
    for _, parameters, results in step.blocks:
        step.pin(*parameters, *results)
