"""What combines the elements of a reduction: which results have it, where it starts, two totals as one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.mlir.dialects import complex as complex_dialect

#: Combiners that round, so that their order is part of the meaning under numerics ``strict``.
_ROUNDS = ("arith.addf", "arith.mulf")
_INFINITE = {"arith.maximumf": float("-inf"), "arith.minimumf": float("inf")}
_NEUTRAL_FLOATS = {"arith.addf": 0.0, "arith.mulf": 1.0, **_INFINITE}
_INTEGERS = (
    *("arith.addi", "arith.muli", "arith.andi", "arith.ori", "arith.xori"),
    *("arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui"),
)
#: The parts of a complex number.
_PARTS = ("complex.re", "complex.im")
_KNOWN = (*_NEUTRAL_FLOATS, *_INTEGERS)


@dataclass(frozen=True)
class Combiner:
    """The operation that takes the old value of a result, as operand ``old``; ``rounded`` to the result."""

    operation: mlir.Op
    old: int
    rounded: mlir.Op | None

    @property
    def name(self) -> str:
        return mlir.name_of(self.operation)

    @property
    def elements(self) -> list[mlir.Value]:
        """What is combined with the old value."""
        return [self.operation.operands[1 - self.old]]

    @property
    def wide(self) -> mlir.Type:
        """The type in which totals are combined."""
        return self.operation.results[0].type

    def neutral(self, element: mlir.Type) -> mlir.Value:
        """What totals start from."""
        if self.name in _NEUTRAL_FLOATS:
            return mlir.float_constant(_NEUTRAL_FLOATS[self.name], element)
        return mlir.constant(_neutral_integer(self.name, _bits(element)), str(element))

    def __call__(self, first: mlir.Value, second: mlir.Value) -> mlir.Value:
        """Two totals as one, at the current point."""
        given = [self._widened(first), self._widened(second)]
        copy = mlir.clone(self.operation)
        for number, value in enumerate(given if self.old == 0 else reversed(given)):
            copy.operands[number] = value
        if self.rounded is None:
            return copy.results[0]
        narrow = mlir.clone(self.rounded)
        narrow.operands[0] = copy.results[0]
        return narrow.results[0]

    def _widened(self, total: mlir.Value) -> mlir.Value:
        return total if total.type == self.wide else arith.extf(self.wide, total)


@dataclass(frozen=True)
class ComplexSum:
    """A sum of complex numbers: of their real and of their imaginary parts."""

    elements: tuple[mlir.Value, mlir.Value]

    @property
    def name(self) -> str:
        return "complex.add"

    def neutral(self, element: mlir.Type) -> mlir.Value:
        """What totals start from."""
        zero = mlir.float_constant(-0.0, mlir.element_type(element))
        return complex_dialect.create_(element, zero, zero)

    def __call__(self, first: mlir.Value, second: mlir.Value) -> mlir.Value:
        """Two totals as one, at the current point."""
        parts: list[mlir.Value] = []
        for read in (complex_dialect.re, complex_dialect.im):
            both = [read(total) for total in (first, second)]
            parts.append(arith.addf(*both))
        return complex_dialect.create_(first.type, *parts)


#: What makes one total of two.
Fold: TypeAlias = Combiner | ComplexSum


def _complex_sum(value: mlir.Value, old: mlir.Value) -> ComplexSum | None:
    owner = mlir.defining(value)
    if owner is None or mlir.name_of(owner) != "complex.create":
        return None
    elements: list[mlir.Value] = []
    for name, operand in zip(_PARTS, owner.operands, strict=True):
        total = mlir.defining(operand)
        if total is None or mlir.name_of(total) != "arith.addf":
            return None
        taken = [_is_part(one, name, old) for one in total.operands]
        if sum(taken) != 1:
            return None
        elements.append(total.operands[taken.index(False)])
    if sorted(mlir.name_of(user) for user, _ in mlir.uses(old)) != sorted(_PARTS):
        return None
    return ComplexSum((elements[0], elements[1]))


def _is_part(value: mlir.Value, name: str, old: mlir.Value) -> bool:
    owner = mlir.defining(value)
    alone = len(list(mlir.uses(value))) == 1
    return owner is not None and mlir.name_of(owner) == name and owner.operands[0] == old and alone


def _bits(element: mlir.Type) -> int:
    return int("".join(filter(str.isdigit, str(element))))


def _neutral_integer(name: str, bits: int) -> int:
    match name:
        case "arith.muli":
            return 1
        case "arith.andi" | "arith.minui":
            return -1
        case "arith.maxsi":
            return -(1 << (bits - 1))
        case "arith.minsi":
            return (1 << (bits - 1)) - 1
        case _:
            return 0


def combiners_of(generic: mlir.Op, strict: bool) -> dict[int, Fold]:
    """By number of the result: those whose elements may be combined in any grouping.

    What is combined depends on no other result's old value.
    """
    body = mlir.block_of(generic)
    yielded = list(mlir.last(body).operands)
    old = list(body.arguments)[-len(yielded) :]
    found: dict[int, Fold] = {}
    for number, (value, argument) in enumerate(zip(yielded, old, strict=True)):
        combiner = _combiner(value, argument, strict)
        if combiner is None and not strict:
            combiner = _complex_sum(value, argument)
        if combiner is not None:
            found[number] = combiner
    for combiner in found.values():
        if any(depends(element, old) for element in combiner.elements):
            return {}
    return found


def _combiner(value: mlir.Value, old: mlir.Value, strict: bool) -> Combiner | None:
    operation, rounded = mlir.defining(value), None
    if operation is not None and mlir.name_of(operation) == "arith.truncf":
        operation, rounded = mlir.defining(operation.operands[0]), operation
    if operation is None or (strict and mlir.name_of(operation) in _ROUNDS):
        return None
    if str(old.type) == "index" or mlir.name_of(operation) not in (
        *_NEUTRAL_FLOATS,
        *_INTEGERS,
        "complex.add",
    ):
        return None
    (use, *more) = [user for user, _ in mlir.uses(old)] or [None]
    if more or use is None:
        return None
    taken = old
    if mlir.name_of(use) == "arith.extf":
        taken = use.results[0]
        (use, *more) = [user for user, _ in mlir.uses(taken)] or [None]
    if more or use != operation or (rounded is None) != (taken == old):
        return None
    return Combiner(operation, list(operation.operands).index(taken), rounded)


def depends(value: mlir.Value, arguments: Sequence[mlir.Value]) -> bool:
    """Whether ``value`` is made of one of ``arguments``; of what has regions nothing is known."""
    pending, seen = [value], set[mlir.Op]()
    while pending:
        one = pending.pop()
        if one in arguments:
            return True
        owner = mlir.defining(one)
        if owner is None or owner in seen:
            continue
        seen.add(owner)
        for inner in mlir.walk(owner):
            pending += list(inner.operands)
    return False


def scans(generic: mlir.Op, found: Collection[int]) -> bool:
    """Whether some other result needs the totals on the way."""
    body = mlir.block_of(generic)
    yielded = list(mlir.last(body).operands)
    old = list(body.arguments)[-len(yielded) :]
    totals = [old[number] for number in found]
    return any(depends(value, totals) for number, value in enumerate(yielded) if number not in found)
