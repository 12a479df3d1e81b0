"""What a shape rule sees of an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.spec.erasure.solver import Solver
from kcache_compiler.spec.graph.native import integers
from kcache_compiler.spec.graph.nodes import DYNAMIC, ValueType
from kcache_compiler.spec.importers.flatten import Block, Entry

if TYPE_CHECKING:
    from torch_mlir import ir

Dims = tuple[int, ...]


class OperationDims:
    """The dims of one operation: of its operands where it uses them, of its results, and of its regions."""

    __slots__ = (
        "blocks",
        "entry",
        "operands",
        "results",
        "solver",
        "types",
        "uniform_in",
        "uniform_out",
    )

    def __init__(
        self,
        solver: Solver,
        entry: Entry,
        results: Sequence[Dims],
        uniform_in: Sequence[frozenset[int]],
        types: Sequence[ValueType],
        blocks: Sequence[tuple[Block, Sequence[Dims], Sequence[Dims]]],
    ) -> None:
        self.solver = solver
        self.entry = entry
        self.operands: Sequence[Dims] = entry.dims
        self.results = results
        #: Uniform dims of the operands; the rule sets those of the results.
        self.uniform_in = uniform_in
        self.uniform_out: list[frozenset[int]] = [frozenset()] * len(results)
        #: Regions with the dims of their parameters and of their results.
        self.blocks = blocks
        self.types = types

    @property
    def attributes(self) -> ir.OpAttributeMap:
        """The attributes of the operation."""
        return self.entry.operation.attributes

    @property
    def plain(self) -> bool:
        """Whether all element types are plain, so that values may be shown through views."""
        return not any("!" in t.element or "#" in t.element for t in self.types)

    def ints(self, name: str) -> list[int]:
        """Return an attribute that is a list of integers; empty if it is absent."""
        try:
            return integers(self.attributes, name)
        except KeyError:
            return []

    def size(self, dim: int) -> int:
        """Return the size of a dim in the program."""
        return self.solver.size(dim)

    def pin(self, *shapes: Dims) -> None:
        """Keep the sizes of dims."""
        for dims in shapes:
            self.solver.pin(*dims)

    def same(self, a: int, b: int) -> None:
        """Constrain two dims to be equal."""
        self.solver.union(a, b)

    def match(self, a: Dims, b: Dims) -> None:
        """Constrain two shapes to be equal."""
        union = self.solver.union
        for x, y in zip(a, b, strict=True):
            union(x, y)

    def same_or_pinned(self, a: int, b: int) -> None:
        """Constrain two dims of one known size to be equal; pin dims of different sizes."""
        if self.solver.size(a) == self.solver.size(b) != DYNAMIC:
            self.solver.union(a, b)
        else:
            self.solver.pin(a, b)


Rule = Callable[[OperationDims], None]


def pinned(op: OperationDims) -> None:
    """Keep all sizes: the rule of operations without a rule of their own."""
    op.pin(*op.operands, *op.results)
    for _, parameters, results in op.blocks:
        op.pin(*parameters, *results)
