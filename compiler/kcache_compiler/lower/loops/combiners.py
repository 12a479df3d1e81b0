"""Combiners of reductions: matching them, their neutral elements, and combining two totals."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.mlir.dialects import complex as complex_dialect

#: Combiners that round: numerics ``strict`` preserves their order.
_ROUNDS = ("arith.addf", "arith.mulf")
_INFINITE = {"arith.maximumf": float("-inf"), "arith.minimumf": float("inf")}
_NEUTRAL_FLOATS = {"arith.addf": -0.0, "arith.mulf": 1.0, **_INFINITE}
_INTEGERS = (
    *("arith.addi", "arith.muli", "arith.andi", "arith.ori", "arith.xori"),
    *("arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui"),
)
#: The parts of a complex number.
_PARTS = ("complex.re", "complex.im")


@dataclass(frozen=True)
class Combiner:
    """The operation whose operand number ``old`` is the old value; ``rounded`` truncates its result."""

    operation: mlir.Op
    old: int
    rounded: mlir.Op | None

    @property
    def name(self) -> str:
        return mlir.name_of(self.operation)

    @property
    def elements(self) -> list[mlir.Value]:
        """The operands that are combined with the old value."""
        return [self.operation.operands[1 - self.old]]

    @property
    def wide(self) -> mlir.Type:
        """The type in which totals are combined."""
        return self.operation.results[0].type

    def neutral(self, element: mlir.Type) -> mlir.Value:
        """The neutral element, from which totals start."""
        if self.name in _NEUTRAL_FLOATS:
            return mlir.float_constant(_NEUTRAL_FLOATS[self.name], element)
        return mlir.constant(_neutral_integer(self.name, _bits(element)), str(element))

    def __call__(self, first: mlir.Value, second: mlir.Value) -> mlir.Value:
        """Combine two totals at the insertion point."""
        operands = [self._widened(first), self._widened(second)]
        copy = mlir.clone(self.operation)
        for number, value in enumerate(operands if self.old == 0 else reversed(operands)):
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
    """A sum of complex numbers, by real and imaginary part."""

    elements: tuple[mlir.Value, mlir.Value]

    @property
    def name(self) -> str:
        return "complex.add"

    def neutral(self, element: mlir.Type) -> mlir.Value:
        """The neutral element, from which totals start."""
        zero = mlir.float_constant(-0.0, mlir.element_type(element))
        return complex_dialect.create_(element, zero, zero)

    def __call__(self, first: mlir.Value, second: mlir.Value) -> mlir.Value:
        """Combine two totals at the insertion point."""
        parts: list[mlir.Value] = []
        for read in (complex_dialect.re, complex_dialect.im):
            operands = [read(total) for total in (first, second)]
            parts.append(arith.addf(*operands))
        return complex_dialect.create_(first.type, *parts)


#: Combines two totals.
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
        is_old = [_is_part(operand, name, old) for operand in total.operands]
        if sum(is_old) != 1:
            return None
        elements.append(total.operands[is_old.index(False)])
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
    """The combiners of results whose elements may be combined in any grouping, by result number.

    The combined elements do not depend on the old value of another result.
    """
    body = mlir.block_of(generic)
    yielded = list(mlir.last(body).operands)
    old_values = list(body.arguments)[-len(yielded) :]
    combiners: dict[int, Fold] = {}
    for number, (value, argument) in enumerate(zip(yielded, old_values, strict=True)):
        combiner = _combiner(value, argument, strict)
        if combiner is None and not strict:
            combiner = _complex_sum(value, argument)
        if combiner is not None:
            combiners[number] = combiner
    for combiner in combiners.values():
        if any(depends(element, old_values) for element in combiner.elements):
            return {}
    return combiners


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
    (use, *other_uses) = [user for user, _ in mlir.uses(old)] or [None]
    if other_uses or use is None:
        return None
    operand = old
    if mlir.name_of(use) == "arith.extf":
        operand = use.results[0]
        (use, *other_uses) = [user for user, _ in mlir.uses(operand)] or [None]
    if other_uses or use != operation or (rounded is None) != (operand == old):
        return None
    return Combiner(operation, list(operation.operands).index(operand), rounded)


def depends(value: mlir.Value, arguments: Sequence[mlir.Value]) -> bool:
    """Whether ``value`` is computed from one of ``arguments``; all operands in nested regions count."""
    pending, visited = [value], set[mlir.Op]()
    while pending:
        current = pending.pop()
        if current in arguments:
            return True
        owner = mlir.defining(current)
        if owner is None or owner in visited:
            continue
        visited.add(owner)
        for inner in mlir.walk(owner):
            pending += list(inner.operands)
    return False


def scans(generic: mlir.Op, reduced: Collection[int]) -> bool:
    """Whether another result uses the intermediate totals."""
    body = mlir.block_of(generic)
    yielded = list(mlir.last(body).operands)
    old_values = list(body.arguments)[-len(yielded) :]
    totals = [old_values[number] for number in reduced]
    return any(depends(value, totals) for number, value in enumerate(yielded) if number not in reduced)
