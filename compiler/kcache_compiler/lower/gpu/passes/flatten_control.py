"""Control flow of the program that a GPU can do without: launches are a fixed list.

Both branches of ``if`` and ``case`` are computed, and the one that is wanted selected. A loop whose number
of turns follows from constants becomes so many copies of its body. Integers of rank 0 are computed here on
the way, so that what a loop counts is a constant in each copy. Other loops stay, and are launches of one
block (``around.py``); one that stood in a branch takes no turn where the branch is not wanted.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.lower.gpu.passes.constant_integers import Integers
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.control_flow import to_scf
from kcache_compiler.passes.stage import Unit

#: Operations that the copies of one program's loops may come to: each may be a launch.
MAX_OPERATIONS = 2048
_CONTROL = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
_TRUTH = "tensor<i1>"


def flatten_control(unit: Unit) -> None:
    """Leave no control flow but loops of many turns, or of turns that depend on data or dynamic sizes."""
    for function in mlir.named(unit.module, "func.func"):
        flat = _Flat(function)
        while (op := flat.first()) is not None:
            flat.step(op)
    to_scf(unit.module)


class _Flat:
    """A function whose control flow goes, outermost first: what it held stands where it stood."""

    def __init__(self, function: mlir.Op) -> None:
        self.function = function
        self.integers = Integers()
        self.left = MAX_OPERATIONS
        #: Loops that stay.
        self.kept: set[mlir.Op] = set()
        #: By operation, what must hold for it to be wanted at all.
        self.guards: dict[mlir.Op, tuple[mlir.Value, ...]] = {}

    def first(self) -> mlir.Op | None:
        found = mlir.named(self.function, *_CONTROL)
        return next((op for op in found if op not in self.kept and self._stands(op)), None)

    def _stands(self, op: mlir.Op) -> bool:
        """In the function itself or in a loop that stays."""
        return mlir.within(op, self.function) or op.operation.parent in self.kept

    def step(self, op: mlir.Op) -> None:
        with mlir.before(op), mlir.at_location(op):
            results = self._unrolled(op) if mlir.name_of(op) == "stablehlo.while" else self._selected(op)
        if results is None:
            self._keep(op)
            return
        for before, after in zip(op.results, results, strict=True):
            before.replace_all_uses_with(after)
        self.guards.pop(op, None)
        op.erase()

    def _selected(self, op: mlir.Op) -> list[mlir.Value]:
        """The values of the first branch whose condition holds; of the last where none does."""
        count = len(op.operation.regions)
        is_if = mlir.name_of(op) == "stablehlo.if"
        wanted = [op.operands[0]] if is_if else _equal(op.operands[0], count - 1)
        branches: list[list[mlir.Value]] = []
        for number in range(count):
            guards = _chosen(wanted, number) if _has_loops(mlir.block_of(op, number)) else []
            branches.append(self._copied(op, number, guards=guards))
        chosen = branches[-1]
        for condition, values in reversed(list(zip(wanted, branches, strict=False))):
            pairs = zip(values, chosen, strict=True)
            chosen = [mlir.value("stablehlo.select", [condition, a, b], a.type) for a, b in pairs]
        return chosen

    def _turns(self, op: mlir.Op) -> int | None:
        """How often a loop runs; None where nobody knows, or its copies were too many."""
        weight = sum(_weight(mlir.block_of(op, number)) for number in range(2))
        carried = [self.integers.of(operand) for operand in op.operands]
        for turns in range(self.left // max(1, weight) + 1):
            (more,) = self.integers.after(mlir.block_of(op, 0), carried)
            if not more:
                self.left -= turns * weight
                return None if more is None else turns
            carried = self.integers.after(mlir.block_of(op, 1), carried)
        return None

    def _unrolled(self, op: mlir.Op) -> list[mlir.Value] | None:
        """None where the loop has to stay."""
        turns, carried = self._turns(op), list(op.operands)
        for _ in range(turns or 0):
            carried = self._copied(op, 1, carried)
        return None if turns is None else carried

    def _keep(self, loop: mlir.Op) -> None:
        """What stands in it is wanted where the loop is; its condition says so."""
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
        """What a region returns, from copies of its operations here."""
        block = mlir.block_of(op, region)
        here: dict[mlir.Value, mlir.Value] = dict(zip(list(block.arguments), arguments or [], strict=True))
        *operations, end = mlir.operations(block)
        for operation in operations:
            operands = [here.get(operand, operand) for operand in operation.operands]
            known = self.integers.result(operation, operands)
            if known is not None:
                here[operation.results[0]] = self.integers.constant(known, operation.results[0].type)
                continue
            copy = mlir.clone(operation)
            _replace_inside(copy, here)
            here.update(zip(operation.results, copy.results, strict=True))
            if mlir.name_of(copy) in _CONTROL:
                self.guards[copy] = (*self.guards.get(op, ()), *guards)
        return [here.get(value, value) for value in end.operands]


def _replace_inside(copy: mlir.Op, here: dict[mlir.Value, mlir.Value]) -> None:
    """Operands of an operation and of those in its regions."""
    for inner in mlir.walk(copy):
        for place, operand in enumerate(list(inner.operands)):
            if operand in here:
                inner.operands[place] = here[operand]


def _weight(block: mlir.Block) -> int:
    """How many operations a copy of a region comes to, those in its control flow included."""
    operations = mlir.operations(block)[:-1]
    return sum(
        len(mlir.walk(operation)) if mlir.name_of(operation) in _CONTROL else 1 for operation in operations
    )


def _has_loops(block: mlir.Block) -> bool:
    return any(mlir.named(operation, "stablehlo.while") for operation in mlir.operations(block))


def _chosen(wanted: list[mlir.Value], number: int) -> list[mlir.Value]:
    """What holds where branch ``number`` is the first whose condition does: of these only one can."""
    if number < len(wanted):
        return [wanted[number]]
    return [mlir.value("stablehlo.not", [one], mlir.type_of(_TRUTH)) for one in wanted]


def _equal(index: mlir.Value, count: int) -> list[mlir.Value]:
    """Whether ``index`` is 0, 1 and so on."""
    found: list[mlir.Value] = []
    for number in range(count):
        kind = index.type
        wanted = mlir.value("stablehlo.constant", (), kind, value=mlir.attribute(f"dense<{number}> : {kind}"))
        direction = mlir.attribute("#stablehlo<comparison_direction EQ>")
        result = mlir.type_of(_TRUTH)
        found.append(mlir.value("stablehlo.compare", [index, wanted], result, comparison_direction=direction))
    return found
