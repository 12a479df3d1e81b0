"""Flattens control flow for a GPU, since launches are a fixed list.

All branches of ``if`` and ``case`` are computed, and a select chooses the result. A loop with a constant trip
count is unrolled; integers of rank 0 are folded meanwhile, so that the counter is constant in each copy.
Other loops stay, and become launches of one block (``while_loop.py``); a loop of a branch that is not taken
runs no iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.lower.gpu.passes.constant_integers import Integers
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.control_flow import to_scf
from kcache_compiler.passes.stage import Unit

#: Maximum number of operations of a program's unrolled loops: each may be a launch.
MAX_OPERATIONS = 2048
_CONTROL = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
_TRUTH = "tensor<i1>"


def flatten_control(unit: Unit) -> None:
    """Remove all control flow except loops with a large, data-dependent or dynamic trip count."""
    for function in mlir.named(unit.module, "func.func"):
        flat = _Flat(function)
        while (op := flat.first()) is not None:
            flat.step(op)
    to_scf(unit.module)


class _Flat:
    """Flattens the control flow of a function, outermost operations first."""

    def __init__(self, function: mlir.Op) -> None:
        self.function = function
        self.integers = Integers()
        self.left = MAX_OPERATIONS
        #: Loops that stay.
        self.kept: set[mlir.Op] = set()
        #: The conditions under which an operation is executed.
        self.guards: dict[mlir.Op, tuple[mlir.Value, ...]] = {}

    def first(self) -> mlir.Op | None:
        control_ops = mlir.named(self.function, *_CONTROL)
        return next((op for op in control_ops if op not in self.kept and self._stands(op)), None)

    def _stands(self, op: mlir.Op) -> bool:
        """Whether ``op`` is directly in the function or in a loop that stays."""
        return mlir.within(op, self.function) or op.operation.parent in self.kept

    def step(self, op: mlir.Op) -> None:
        with mlir.before(op), mlir.at_location(op):
            results = self._unrolled(op) if mlir.name_of(op) == "stablehlo.while" else self._selected(op)
        if results is None:
            self._keep(op)
            return
        for old_result, new_result in zip(op.results, results, strict=True):
            old_result.replace_all_uses_with(new_result)
        self.guards.pop(op, None)
        op.erase()

    def _selected(self, op: mlir.Op) -> list[mlir.Value]:
        """The values of the first branch whose condition holds, or of the last branch."""
        count = len(op.operation.regions)
        is_if = mlir.name_of(op) == "stablehlo.if"
        conditions = [op.operands[0]] if is_if else _equal(op.operands[0], count - 1)
        branches: list[list[mlir.Value]] = []
        for number in range(count):
            guards = _chosen(conditions, number) if _has_loops(mlir.block_of(op, number)) else []
            branches.append(self._copied(op, number, guards=guards))
        chosen = branches[-1]
        for condition, values in reversed(list(zip(conditions, branches, strict=False))):
            pairs = zip(values, chosen, strict=True)
            chosen = [mlir.value("stablehlo.select", [condition, a, b], a.type) for a, b in pairs]
        return chosen

    def _turns(self, op: mlir.Op) -> int | None:
        """The trip count of a loop; None if it is not constant, or there would be too many copies."""
        weight = sum(_weight(mlir.block_of(op, number)) for number in range(2))
        carried = [self.integers.of(operand) for operand in op.operands]
        for turns in range(self.left // max(1, weight) + 1):
            (continues,) = self.integers.after(mlir.block_of(op, 0), carried)
            if not continues:
                self.left -= turns * weight
                return None if continues is None else turns
            carried = self.integers.after(mlir.block_of(op, 1), carried)
        return None

    def _unrolled(self, op: mlir.Op) -> list[mlir.Value] | None:
        """The results of the unrolled loop; None if the loop has to stay."""
        turns, carried = self._turns(op), list(op.operands)
        for _ in range(turns or 0):
            carried = self._copied(op, 1, carried)
        return None if turns is None else carried

    def _keep(self, loop: mlir.Op) -> None:
        """Keep a loop: its guards become part of its condition, and apply to nested control flow."""
        self.kept.add(loop)
        guards = self.guards.pop(loop, ())
        for number in range(2):
            for operation in mlir.operations(mlir.block_of(loop, number)):
                if guards and mlir.name_of(operation) in _CONTROL:
                    self.guards[operation] = guards
        end = mlir.operations(mlir.block_of(loop))[-1]
        with mlir.before(end), mlir.at_location(loop):
            for guard in guards:
                end.operands[0] = mlir.value("stablehlo.and", [end.operands[0], guard], mlir.type_of(_TRUTH))

    def _copied(
        self,
        op: mlir.Op,
        region: int,
        arguments: list[mlir.Value] | None = None,
        guards: Sequence[mlir.Value] = (),
    ) -> list[mlir.Value]:
        """Clone the operations of a region at the insertion point; returns the values that it returns."""
        block = mlir.block_of(op, region)
        mapping: dict[mlir.Value, mlir.Value] = dict(zip(list(block.arguments), arguments or [], strict=True))
        *operations, end = mlir.operations(block)
        for operation in operations:
            operands = [mapping.get(operand, operand) for operand in operation.operands]
            number = self.integers.result(operation, operands)
            if number is not None:
                mapping[operation.results[0]] = self.integers.constant(number, operation.results[0].type)
                continue
            copy = mlir.clone(operation)
            _replace_inside(copy, mapping)
            mapping.update(zip(operation.results, copy.results, strict=True))
            if mlir.name_of(copy) in _CONTROL:
                self.guards[copy] = (*self.guards.get(op, ()), *guards)
        return [mapping.get(value, value) for value in end.operands]


def _replace_inside(copy: mlir.Op, mapping: dict[mlir.Value, mlir.Value]) -> None:
    """Replace the operands of an operation and of those in its regions."""
    for inner in mlir.walk(copy):
        for place, operand in enumerate(list(inner.operands)):
            if operand in mapping:
                inner.operands[place] = mapping[operand]


def _weight(block: mlir.Block) -> int:
    """The number of operations of a copy of a region, including nested control flow."""
    operations = mlir.operations(block)[:-1]
    return sum(
        len(mlir.walk(operation)) if mlir.name_of(operation) in _CONTROL else 1 for operation in operations
    )


def _has_loops(block: mlir.Block) -> bool:
    return any(mlir.named(operation, "stablehlo.while") for operation in mlir.operations(block))


def _chosen(conditions: list[mlir.Value], number: int) -> list[mlir.Value]:
    """The conditions under which branch ``number`` is taken; the conditions of branches are exclusive."""
    if number < len(conditions):
        return [conditions[number]]
    return [mlir.value("stablehlo.not", [condition], mlir.type_of(_TRUTH)) for condition in conditions]


def _equal(index: mlir.Value, count: int) -> list[mlir.Value]:
    """Whether ``index`` is 0, 1, ... ``count - 1``."""
    conditions: list[mlir.Value] = []
    for number in range(count):
        kind = index.type
        constant = mlir.value(
            "stablehlo.constant", (), kind, value=mlir.attribute(f"dense<{number}> : {kind}")
        )
        direction = mlir.attribute("#stablehlo<comparison_direction EQ>")
        result = mlir.type_of(_TRUTH)
        conditions.append(
            mlir.value("stablehlo.compare", [index, constant], result, comparison_direction=direction)
        )
    return conditions
