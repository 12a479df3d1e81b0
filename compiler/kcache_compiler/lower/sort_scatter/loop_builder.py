"""Helpers that emit the loops of scatters and sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.lower.sort_scatter.marker import MarkerLaunch, Walk
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, scf
from kcache_compiler.shapes.formula import Formula

_SIGNED = {
    "eq": arith.CmpIPredicate.eq,
    "ne": arith.CmpIPredicate.ne,
    "lt": arith.CmpIPredicate.slt,
    "le": arith.CmpIPredicate.sle,
    "gt": arith.CmpIPredicate.sgt,
    "ge": arith.CmpIPredicate.sge,
}


@dataclass
class MarkerOperands:
    """A marker inside its slice function: the layout of its operands, and captured values."""

    generic: mlir.Op
    inputs: int
    walks: list[Walk]
    bases: list[Pointer]
    views: dict[mlir.Value, Pointer]
    scalars: dict[mlir.Value, mlir.Value]
    dims: mlir.Value | None
    cache: dict[Formula, mlir.Value]
    #: Scratch memory of the worker; None if the plan has none.
    scratch: mlir.Value | None = None
    #: Memory that workers share; None if the plan has none.
    shared: mlir.Value | None = None
    #: Bytes of a vector register of the target.
    vector_bytes: int = 16
    #: Called functions, by name, as text.
    library: dict[str, str] = field(default_factory=dict[str, str])

    def value(self, formula: Formula) -> mlir.Value:
        """The i64 of a formula; its first use must be outside of loops."""
        return memory.emit_formula(formula, self.dims, self.cache)

    def start(self, number: int) -> Pointer:
        """The pointer to the first element of operand ``number``."""
        base = self.bases[number]
        return Pointer(memory.shift(base, self.value(self.walks[number].offset)), base.element, [])

    def apply(self, values: Sequence[mlir.Value | None]) -> list[mlir.Value]:
        """Clone the region for scalars by operand; None for operands that it does not use."""
        body = mlir.block_of(self.generic)
        mapping = dict(self.scalars)
        mapping |= {a: b for a, b in zip(body.arguments, values, strict=True) if b is not None}
        return memory.clone_body(body, mapping, self.views, {})


#: Emits a launch for a range of its steps; a launch that is one of several.
Write: TypeAlias = Callable[[MarkerOperands, tuple[mlir.Value, mlir.Value]], None]
Phase: TypeAlias = tuple[MarkerLaunch, Write]


def loop(low: mlir.Value, high: mlir.Value, body: Callable[[mlir.Value], None], step: int = 1) -> None:
    """``for low <= i < high``, in steps."""
    block = mlir.block_of(mlir.for_loop((low, high), mlir.constant(step)))
    with mlir.at_end(block):
        body(block.arguments[0])
        scf.yield_([])


def if_then(condition: mlir.Value, body: Callable[[], None]) -> None:
    """``if condition``."""
    with mlir.at_end(scf.IfOp(condition).then_block):
        body()
        scf.yield_([])


def if_else_values(
    condition: mlir.Value,
    kinds: Sequence[mlir.Type],
    yes: Callable[[], list[mlir.Value]],
    no: Callable[[], list[mlir.Value]],
) -> list[mlir.Value]:
    """The values of one of two branches."""
    chosen = mlir.if_else(condition, kinds)
    for number, branch in enumerate((yes, no)):
        with mlir.at_end(mlir.block_of(chosen, number)):
            scf.yield_(branch())
    return list(chosen.results)


def while_loop(
    values: Sequence[mlir.Value],
    condition: Callable[[list[mlir.Value]], mlir.Value],
    body: Callable[[list[mlir.Value]], list[mlir.Value]],
) -> list[mlir.Value]:
    """``while condition(values): values = body(values)``."""
    kinds = [value.type for value in values]
    loop = scf.WhileOp(kinds, values).operation
    condition_block, body_block = mlir.new_block(loop, 0, kinds), mlir.new_block(loop, 1, kinds)
    with mlir.at_end(condition_block):
        scf.condition(condition(list(condition_block.arguments)), condition_block.arguments)
    with mlir.at_end(body_block):
        scf.yield_(body(list(body_block.arguments)))
    return list(loop.results)


def compare(predicate: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """Signed comparison."""
    return arith.cmpi(_SIGNED[predicate], a, b)


def logical_and(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """Logical and."""
    return arith.andi(a, b)


def minus(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """The difference, which may wrap around."""
    return a if mlir.constant_int(b) == 0 else arith.subi(a, b)


def minimum(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """The smaller of two integers."""
    return arith.minsi(a, b)


def maximum(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """The larger of two integers."""
    return arith.maxsi(a, b)
