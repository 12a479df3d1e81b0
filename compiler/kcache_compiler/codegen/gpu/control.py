"""Control flow of the program that a GPU can do without: launches are a fixed list.

Both branches of ``if`` and ``case`` are computed, and the one that is wanted selected. A loop whose number
of turns follows from constants becomes so many copies of its body. Integers of rank 0 are computed here on
the way, so that what a loop counts is a constant in each copy.
"""

from __future__ import annotations

from typing import Any

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.gpu.integers import Integers
from kcache_compiler.codegen.stage import Unit
from kcache_compiler.errors import UnsupportedOp

#: Operations that the copies of one program's loops may come to: each may be a launch.
MAX_OPERATIONS = 2048
_CONTROL = ("stablehlo.while", "stablehlo.if", "stablehlo.case")


def flatten_control(unit: Unit) -> None:
    """Leave no control flow among the operations of functions. Raises ``UnsupportedOp`` for other loops."""
    for function in mlir.named(unit.module, "func.func"):
        flat = _Flat(function)
        while flat.first() is not None:
            flat.step()


class _Flat:
    """A function whose control flow goes, outermost first: what it held stands where it stood."""

    def __init__(self, function: mlir.Op) -> None:
        self.function = function
        self.integers = Integers()
        self.left = MAX_OPERATIONS

    def first(self) -> mlir.Op | None:
        found = mlir.named(self.function, *_CONTROL)
        return next((op for op in found if mlir.within(op, self.function)), None)

    def step(self) -> None:
        op = self.first()
        assert op is not None
        with mlir.before(op), mlir.at_location(op):
            if mlir.name_of(op) == "stablehlo.while":
                results = self._unrolled(op)
            elif mlir.name_of(op) == "stablehlo.if":
                results = self._selected([op.operands[0]], [self._copied(op, number) for number in (0, 1)])
            else:
                branches = [self._copied(op, number) for number in range(len(op.operation.regions))]
                results = self._selected(_equal(op.operands[0], len(branches) - 1), branches)
        for before, after in zip(op.results, results, strict=True):
            before.replace_all_uses_with(after)
        op.erase()

    def _selected(self, wanted: list[mlir.Value], branches: list[list[mlir.Value]]) -> list[mlir.Value]:
        """The values of the first branch whose condition holds; of the last where none does."""
        chosen = branches[-1]
        for condition, values in reversed(list(zip(wanted, branches, strict=False))):
            pairs = zip(values, chosen, strict=True)
            chosen = [mlir.value("stablehlo.select", [condition, a, b], a.type) for a, b in pairs]
        return chosen

    def _unrolled(self, op: mlir.Op) -> list[mlir.Value]:
        carried = list(op.operands)
        while True:
            (condition,) = self._copied(op, 0, carried)
            more = self.integers.of(condition)
            if more is None:
                raise UnsupportedOp(
                    "stablehlo.while",
                    "how often the loop runs depends on data or on open sizes, which has no GPU form; "
                    "compile it for a CPU target",
                    mlir.location_of(op),
                )
            if not more:
                return carried
            carried = self._copied(op, 1, carried)

    def _copied(
        self, op: mlir.Op, region: int, arguments: list[mlir.Value] | None = None
    ) -> list[mlir.Value]:
        """What a region returns, from copies of its operations here."""
        block = mlir.block_of(op, region)
        here: dict[Any, mlir.Value] = dict(zip(list(block.arguments), arguments or [], strict=True))
        *operations, end = mlir.operations(block)
        self.left -= len(operations)
        if self.left < 0:
            raise UnsupportedOp(
                mlir.name_of(op),
                f"its copies for a GPU come to more than {MAX_OPERATIONS} operations; compile it for a CPU "
                "target",
                mlir.location_of(op),
            )
        for operation in operations:
            operands = [here.get(operand, operand) for operand in operation.operands]
            known = self.integers.result(operation, operands)
            if known is not None:
                here[operation.results[0]] = self.integers.constant(known, operation.results[0].type)
                continue
            copy = mlir.clone(operation)
            _replace_inside(copy, here)
            here.update(zip(operation.results, copy.results, strict=True))
        return [here.get(value, value) for value in end.operands]


def _replace_inside(copy: mlir.Op, here: dict[Any, mlir.Value]) -> None:
    """Operands of an operation and of those in its regions."""
    for inner in mlir.walk(copy):
        for place, operand in enumerate(list(inner.operands)):
            if operand in here:
                inner.operands[place] = here[operand]


def _equal(index: mlir.Value, count: int) -> list[mlir.Value]:
    """Whether ``index`` is 0, 1 and so on."""
    found: list[mlir.Value] = []
    for number in range(count):
        kind = index.type
        wanted = mlir.value("stablehlo.constant", (), kind, value=mlir.attribute(f"dense<{number}> : {kind}"))
        direction = mlir.attribute("#stablehlo<comparison_direction EQ>")
        result = mlir.type_of("tensor<i1>")
        found.append(mlir.value("stablehlo.compare", [index, wanted], result, comparison_direction=direction))
    return found
