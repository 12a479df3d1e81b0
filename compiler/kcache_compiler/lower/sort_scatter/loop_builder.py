"""What the loops of scatters and sorts are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.sort_scatter.marker import Steps, Walk
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.shapes.formula import Formula

_SIGNED = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5}


@dataclass
class Parts:
    """A marker inside its slice function: operands as they lie in memory, and values from outside."""

    generic: mlir.Op
    inputs: int
    walks: list[Walk]
    bases: list[Pointer]
    views: dict[Any, Pointer]
    scalars: dict[Any, mlir.Value]
    dims: mlir.Value
    cache: dict[Formula, mlir.Value]
    #: Bytes of the worker's own; None where the plan asks for none.
    scratch: mlir.Value | None = None
    #: Bytes that workers share; None where the plan asks for none.
    shared: mlir.Value | None = None
    #: Functions that are called, by name, as text.
    library: dict[str, str] = field(default_factory=dict[str, str])

    def value(self, formula: Formula) -> mlir.Value:
        """The i64 of a formula; asked for first outside of loops."""
        return memory.emit_formula(formula, self.dims, self.cache)

    def start(self, number: int) -> Pointer:
        """Operand ``number`` from its first element on."""
        base = self.bases[number]
        return Pointer(memory.shift(base, self.value(self.walks[number].offset)), base.element, [])

    def apply(self, given: Sequence[mlir.Value | None]) -> list[mlir.Value]:
        """The region on scalars by operand; None where it asks for nothing."""
        body = mlir.block_of(self.generic)
        mapping = dict(self.scalars)
        mapping |= {a: b for a, b in zip(body.arguments, given, strict=True) if b is not None}
        return memory.clone_body(body, mapping, self.views, {})


#: Writes a launch for a range of its steps; a launch that is one of several.
Write: TypeAlias = Callable[[Parts, tuple[mlir.Value, mlir.Value]], None]
Phase: TypeAlias = tuple[Steps, Write]


def loop(low: mlir.Value, high: mlir.Value, body: Callable[[mlir.Value], None], step: int = 1) -> None:
    """``for low <= i < high``, in steps."""
    made = mlir.create("scf.for", [low, high, mlir.constant(step)], regions=1)
    block = mlir.new_block(made, 0, [memory.i64()])
    with mlir.at_end(block):
        body(block.arguments[0])
        mlir.create("scf.yield")


def when(condition: mlir.Value, body: Callable[[], None]) -> None:
    """``if condition``."""
    chosen = mlir.create("scf.if", [condition], regions=2)
    with mlir.at_end(mlir.new_block(chosen, 0, [])):
        body()
        mlir.create("scf.yield")


def either(
    condition: mlir.Value,
    kinds: Sequence[mlir.Type],
    yes: Callable[[], list[mlir.Value]],
    no: Callable[[], list[mlir.Value]],
) -> list[mlir.Value]:
    """The values of one of two branches."""
    chosen = mlir.create("scf.if", [condition], list(kinds), regions=2)
    for number, branch in enumerate((yes, no)):
        with mlir.at_end(mlir.new_block(chosen, number, [])):
            mlir.create("scf.yield", branch())
    return list(chosen.results)


def repeat(
    values: Sequence[mlir.Value],
    condition: Callable[[list[mlir.Value]], mlir.Value],
    body: Callable[[list[mlir.Value]], list[mlir.Value]],
) -> list[mlir.Value]:
    """``while condition(values): values = body(values)``."""
    kinds = [value.type for value in values]
    made = mlir.create("scf.while", list(values), kinds, regions=2)
    before, after = mlir.new_block(made, 0, kinds), mlir.new_block(made, 1, kinds)
    with mlir.at_end(before):
        mlir.create("scf.condition", [condition(list(before.arguments)), *before.arguments])
    with mlir.at_end(after):
        mlir.create("scf.yield", body(list(after.arguments)))
    return list(made.results)


def compare(predicate: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """Signed comparison."""
    return mlir.value("arith.cmpi", [a, b], mlir.type_of("i1"), predicate=mlir.int_attr(_SIGNED[predicate]))


def both(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """Logical and."""
    return mlir.value("arith.andi", [a, b], a.type)


def minus(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """The difference, which may wrap around."""
    return a if mlir.constant_int(b) == 0 else mlir.value("arith.subi", [a, b], a.type)


def least(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """The smaller of two integers."""
    return mlir.value("arith.minsi", [a, b], a.type)


def most(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """The larger of two integers."""
    return mlir.value("arith.maxsi", [a, b], a.type)
