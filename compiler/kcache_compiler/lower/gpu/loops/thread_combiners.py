"""Reductions across threads: combiners of partial results, and their neutral elements."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.lower.gpu.intrinsics import shuffled
from kcache_compiler.lower.loops.elements import Code
from kcache_compiler.mlir import operations as mlir

_INF = float("inf")
#: The neutral element by operation.
_FLOATS = {
    "arith.addf": -0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": -_INF,
    "arith.minimumf": _INF,
    "arith.maxnumf": -_INF,
    "arith.minnumf": _INF,
}
_ZERO = ("arith.addi", "arith.ori", "arith.xori", "arith.maxui")
_ONES = ("arith.andi", "arith.minui")


@dataclass(frozen=True)
class Combiner:
    """An associative and commutative operation, with its flags."""

    operation: mlir.Op

    @property
    def kind(self) -> mlir.Type:
        return self.operation.results[0].type

    def apply(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """The combination of two partial results."""
        copy = mlir.clone(self.operation)
        copy.operands[0], copy.operands[1] = a, b
        return copy.results[0]

    def neutral(self) -> mlir.Value:
        """The neutral element."""
        name, kind = mlir.name_of(self.operation), self.kind
        if name in _FLOATS:
            return mlir.float_constant(_FLOATS[name], kind)
        bits = int(str(kind).removeprefix("i"))
        number = 0 if name in _ZERO else -1 if name in _ONES else 1
        if name == "arith.maxsi":
            number = -(1 << (bits - 1))
        if name == "arith.minsi":
            number = (1 << (bits - 1)) - 1
        return mlir.constant(number, str(kind))


#: Operations on integers, which may always be reassociated.
INTEGERS = (*_ZERO, *_ONES, "arith.maxsi", "arith.minsi", "arith.muli")


def combiners_of(code: Code) -> list[Combiner] | None:
    """The combiner of each result of a reduction; None if one may not be reassociated."""
    yielded = list(mlir.operations(code.body)[-1].operands)
    outputs = list(code.body.arguments)[code.inputs :]
    combiners: list[Combiner] = []
    for value, output in zip(yielded, outputs, strict=True):
        owner = mlir.defining(value)
        if owner is None or not _is_free(owner):
            return None
        if [user for user, _ in mlir.uses(output)] != [owner] or len(list(mlir.uses(value))) != 1:
            return None
        combiners.append(Combiner(owner))
    return combiners


def _is_free(owner: mlir.Op) -> bool:
    """Whether the operation may be reassociated."""
    name = mlir.name_of(owner)
    if name in INTEGERS:
        return True
    flags = owner.attributes
    return name in _FLOATS and "fastmath" in flags and "reassoc" in str(flags["fastmath"])


def across_lanes(combiner: Combiner, number: mlir.Value) -> mlir.Value:
    """The combination of the values of all lanes of a warp, in each lane."""
    for lanes in (16, 8, 4, 2, 1):
        number = combiner.apply(number, shuffled(number, lanes))
    return number
