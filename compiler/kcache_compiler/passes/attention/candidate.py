"""What is known of an attention while it is matched: its operations, and what their loops walk."""

from __future__ import annotations

from dataclasses import dataclass, field

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.attention.bodies import constant, elementwise
from kcache_compiler.passes.attention.causal_mask import Reach
from kcache_compiler.passes.fusion.elementwise import Generic


@dataclass
class Attention:
    """What is found so far; ``members`` with their roles, in the order in which they were found."""

    scores: Generic
    members: dict[mlir.Op, str] = field(default_factory=dict[mlir.Op, str])
    scales: dict[mlir.Op, float] = field(default_factory=dict[mlir.Op, float])
    reach: Reach | None = None
    _axes: dict[mlir.Value, tuple[int, ...] | None] = field(
        default_factory=dict[mlir.Value, "tuple[int, ...] | None"]
    )

    def add(self, role: str, *operations: mlir.Op) -> None:
        self.members |= dict.fromkeys(operations, role)

    def axes(self, value: mlir.Value) -> tuple[int, ...] | None:
        """For each axis of ``value`` the axis of the scores that it is; None where it is no such tensor."""
        if value == self.scores.op.results[0]:
            return tuple(range(len(self.scores.maps[-1].results)))
        if value not in self._axes:
            generic = elementwise(value)
            self._axes[value] = None if generic is None else self._result_axes(generic)
        return self._axes[value]

    def _result_axes(self, generic: Generic) -> tuple[int, ...] | None:
        dims = self.dims(generic)
        results = [dims.get(dim) for dim in range(generic.maps[-1].n_dims)]
        return None if not results or None in results else tuple(axis for axis in results if axis is not None)

    def dims(self, generic: Generic) -> dict[int, int]:
        """For each loop of ``generic`` the axis of the scores that it walks, where it walks one."""
        for operand, access in zip(generic.inputs, generic.maps, strict=False):
            plain = [mlir.plain_dim(result) for result in access.results]
            if not plain or None in plain or len(set(plain)) != len(plain):
                continue
            if (axes := self.axes(operand)) is not None:
                return {dim: axis for dim, axis in zip(plain, axes, strict=True) if dim is not None}
        return {}

    def leaf(self, generic: Generic, number: int) -> tuple[object, ...]:
        """Operand ``number`` as it is read, in axes of the scores."""
        dims = self.dims(generic)
        walked = [mlir.plain_dim(result) for result in generic.maps[number].results]
        return (
            "operand",
            generic.inputs[number],
            tuple(None if dim is None else dims.get(dim) for dim in walked),
        )

    def term(self, generic: Generic, value: mlir.Value) -> object:
        """What a value of a body computes, comparable between bodies."""
        if (literal := constant(generic, value)) is not None:
            return ("constant", literal, str(value.type))
        owner = mlir.defining(value)
        if owner is None:
            return self.leaf(generic, list(generic.body.arguments).index(value))
        if mlir.name_of(owner) == "linalg.index":
            return ("index", self.dims(generic).get(mlir.int_of(owner.attributes["dim"])))
        operands = tuple(self.term(generic, operand) for operand in owner.operands)
        return (mlir.name_of(owner), mlir.attributes_text(owner), operands)
