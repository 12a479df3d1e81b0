"""Code of rows of attention: compared scores, weights, and results from maxima, totals and sums."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

from kcache_compiler.lower.attention.evaluate import Coordinates
from kcache_compiler.lower.attention.operands import Gathered
from kcache_compiler.lower.attention.row_bodies import RowCode
from kcache_compiler.lower.gpu.attention.vector_bodies import KeyCoordinates, Lanes, PerKeyValue
from kcache_compiler.lower.gpu.kernel import Kernel
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.shapes.formula import Formula

#: The maximum of a row over some of its keys, the sum of their weights, and a sum of weighted values.
Partial: TypeAlias = tuple[mlir.Value, mlir.Value, mlir.Value]


class Rows(RowCode):
    """Emits code of rows at the insertion point."""

    def __init__(
        self,
        kernel: Kernel,
        attention: Gathered,
        views: dict[mlir.Value, Pointer],
        scalars: dict[mlir.Value, mlir.Value],
    ) -> None:
        self.kernel = kernel
        super().__init__(attention, views, scalars)

    def value(self, formula: Formula) -> mlir.Value:
        return self.kernel.value(formula)

    def begin(self, scores: PerKeyValue, count: int) -> None:
        """Set the scores of ``count`` keys that bodies read."""
        buffer = self.attention.member("scores").operands[-1]
        element = mlir.element_type(buffer.type)
        if str(element) != self.attention.wide:
            numbers = [arith.truncf(element, score) for score in scores.each(count)]
            scores = PerKeyValue(numbers)
        self.lanes = Lanes(self.evaluator, count)
        self.lanes.known[buffer] = scores

    def _places(self, op: mlir.Op, rows: Coordinates, keys: PerKeyValue) -> KeyCoordinates:
        axes: KeyCoordinates = {**self.axes(rows), self.attention.keys[0].name: keys}
        return {dim: axes[axis] for dim, axis in self.attention.dims[op].items()}

    def compared(self, rows: Coordinates, keys: PerKeyValue) -> PerKeyValue:
        """The values of which a row's maximum is taken."""
        op = self.attention.member("top")
        last = len(list(op.operands)) - 1
        return self.lanes.spread(
            self.lanes.result(op, self._places(op, rows, keys), {last: self.negative_infinity()})
        )

    def weights(self, rows: Coordinates, keys: PerKeyValue, subtrahend: mlir.Value) -> PerKeyValue:
        """The weights of a row whose scores are reduced by ``subtrahend``."""
        op, top = self.attention.member("weights"), self.attention.member("top").operands[-1]
        number = next(number for number, operand in enumerate(op.operands) if operand == top)
        return self.lanes.spread(self.lanes.result(op, self._places(op, rows, keys), {number: subtrahend}))

    def combined(self, parts: Sequence[Partial]) -> Partial:
        """The maximum, total and sum of all keys of ``parts``, added in order."""
        if len(parts) == 1:
            return parts[0]
        top = reduce(lambda a, b: self.float(arith.maximumf, [a, b]), [part[0] for part in parts])
        factors = [self.rescaling(part[0], top)[1] for part in parts]
        scaled = [
            [self.float(arith.mulf, [number, factor]) for number in part[1:]]
            for part, factor in zip(parts, factors, strict=True)
        ]
        total, sum_ = (
            reduce(lambda a, b: self.float(arith.addf, [a, b]), list(column))
            for column in zip(*scaled, strict=True)
        )
        return top, total, sum_

    def finish(self, whole: Partial, place: Coordinates, columns: Coordinates) -> None:
        """Store the result of one column of a row at ``place``, whose keys are ``whole``."""
        top, total, sum_ = whole
        masked = self.equal(top, self.negative_infinity())
        total = self.total(masked, total)
        result = self.quotient(masked, total, sum_)
        self.result(result, self.axes(place), columns)
