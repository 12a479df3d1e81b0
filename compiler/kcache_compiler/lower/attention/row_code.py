"""What a kernel of attention computes for single rows: masks and weights of scores, results from sums.

The bodies of the program's operations, at any place, for CPUs and GPUs alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from kcache_compiler.lower.attention.evaluate import Coordinates, Evaluator, after
from kcache_compiler.lower.attention.operands import Gathered, Walked
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.memory import Pointer
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith
from kcache_compiler.passes.fast_math import COMBINERS
from kcache_compiler.shapes.formula import Formula

_LEAST = {"f32": "0xFF800000", "f64": "0xFFF0000000000000"}

#: A builder of an operation on floats.
FloatOp: TypeAlias = Callable[..., mlir.Value]


class RowCode(ABC):
    """Writes at the current point; ``views`` has where the buffers lie that bodies read or write."""

    def __init__(
        self, found: Gathered, views: dict[mlir.Value, Pointer], scalars: dict[mlir.Value, mlir.Value]
    ) -> None:
        self.found, self.views = found, views
        makers = {op.operands[-1]: op for op in found.roles.get("before", ())}
        self.evaluator = Evaluator(makers, views, scalars)
        self.kind = mlir.type_of(found.wide)

    @abstractmethod
    def value(self, formula: Formula) -> mlir.Value:
        """The i64 of a formula."""

    def digits(self, axes: list[Walked], number: mlir.Value) -> Coordinates:
        """The index on each axis of which ``number`` counts the points, outermost first."""
        place: Coordinates = {}
        for axis in reversed(axes[1:]):
            size = self.value(axis.size)
            place[axis.name] = arith.remui(number, size)
            number = arith.divui(number, size)
        return {**place, axes[0].name: number} if axes else {}

    def axes(self, *places: Coordinates) -> Coordinates:
        """Every axis of the scores: those of size 1 stay at 0."""
        every = {axis: mlir.constant(0) for axis in self.found.dims[self.found.one("scores")].values()}
        for place in places:
            every |= place
        return every

    def place(self, op: mlir.Op, axes: Coordinates) -> Coordinates:
        return {dim: axes[axis] for dim, axis in self.found.dims[op].items()}

    def float(self, build: FloatOp, operands: list[mlir.Value], fastmath: str = "") -> mlir.Value:
        """The result of ``build``, with the ``fastmath`` flags of an attribute's text."""
        return build(*operands, fastmath=mlir.attribute(fastmath)) if fastmath else build(*operands)

    def equal(self, left: mlir.Value, right: mlir.Value) -> mlir.Value:
        return arith.cmpf(arith.CmpFPredicate.OEQ, left, right)

    def choose(self, condition: mlir.Value, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return arith.select(condition, a, b)

    def least(self) -> mlir.Value:
        literal = mlir.attribute(f"{_LEAST[self.found.wide]} : {self.found.wide}")
        return arith.constant(self.kind, literal)

    def know_score(self, score: mlir.Value) -> None:
        """The score that bodies read from now on."""
        buffer = self.found.one("scores").operands[-1]
        element = mlir.element_type(buffer.type)
        if str(element) != self.found.wide:
            score = arith.truncf(element, score)
        self.evaluator.known[buffer] = score

    def raised(self, rows: Coordinates, key: mlir.Value, maximum: mlir.Value) -> mlir.Value:
        """The maximum of a row with the known score at ``key``."""
        op = self.found.one("top")
        place = self.place(op, self.axes(rows, {self.found.keys[0].name: key}))
        last = len(list(op.operands)) - 1
        mapping = self.evaluator.arguments(op, place, {last: maximum})
        raised = memory.clone_body(mlir.block_of(op), mapping, self.views, place)[0]
        operation = mlir.definition(raised)
        operation.attributes["fastmath"] = mlir.attribute(COMBINERS["arith.maximumf"])
        return raised

    def weight(self, rows: Coordinates, key: mlir.Value, used: mlir.Value) -> mlir.Value:
        """The weight of the known score at ``key``, for a row whose maximum is ``used``."""
        op = self.found.one("weights")
        number_of_top = next(
            number
            for number, operand in enumerate(op.operands)
            if operand == self.found.one("top").operands[-1]
        )
        place = self.place(op, self.axes(rows, {self.found.keys[0].name: key}))
        return self.evaluator.result(op, place, {number_of_top: used})

    def summed(self, total: mlir.Value, weight: mlir.Value) -> mlir.Value:
        return self.float(arith.addf, [total, weight], COMBINERS["arith.addf"])

    def shrinking(self, before: mlir.Value, top: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
        """For a maximum that rises to ``top``: what weights subtract, and what sums are multiplied by."""
        zero, one = mlir.float_constant(0, self.kind), mlir.float_constant(1, self.kind)
        low = self.equal(top, self.least())
        used = self.choose(low, zero, top)
        shrunk = after(
            self.found.one("weights"),
            difference_of(self.found).results[0],
            self.float(arith.subf, [before, top]),
        )
        same = self.equal(before, top)
        either = arith.ori(low, same)
        return used, self.choose(either, one, shrunk)

    @property
    def late(self) -> bool:
        """Nothing is divided by the totals, but for what follows on the result."""
        return not ("share" in self.found.roles or "guarded" in self.found.roles)

    def total(self, masked: mlir.Value, total: mlir.Value) -> mlir.Value:
        """What the sums of a row are divided by: a row of nothing but -inf has what the program gives it."""
        if "guarded" in self.found.roles:
            return self.choose(masked, mlir.float_constant(1, self.kind), total)
        nothing = mlir.float_constant(float("nan"), self.kind)
        empty = total if self.late else mlir.float_constant(1, self.kind)
        missing = self.choose(self._no_keys(), empty, nothing)
        return self.choose(masked, missing, total)

    def _no_keys(self) -> mlir.Value:
        keys = self.value(self.found.size("keys"))
        return arith.cmpi(arith.CmpIPredicate.eq, keys, mlir.constant(0))

    def quotient(self, masked: mlir.Value, total: mlir.Value, sum_: mlir.Value) -> mlir.Value:
        """The result that a sum of weighted values is."""
        if "total" in self.found.roles and not self.late:
            return self.float(arith.divf, [sum_, total])
        value = self.choose(masked, total, sum_)
        self.evaluator.known[self.found.one("total").operands[-1]] = total
        return value

    def result(self, value: mlir.Value, axes: Coordinates, columns: Coordinates) -> None:
        """Store one element of the result, after what follows on it."""
        mixed = self.found.one("mixed")
        place = {**self.place(mixed, axes), **columns}
        for dim in range(len(mlir.iterator_types(mixed))):
            place.setdefault(dim, mlir.constant(0))
        element = mlir.element_type(mixed.operands[-1].type)
        if str(element) != self.found.wide:
            value = arith.truncf(element, value)
        buffer, maps = mixed.operands[-1], mlir.indexing_maps(mixed)
        indices = [place[_plain(result)] for result in maps[-1].results]
        for op in self.found.roles.get("tail", ()):
            number = next(n for n, operand in enumerate(op.operands) if operand == buffer)
            access = mlir.indexing_maps(op)[number]
            here = {_plain(result): index for result, index in zip(access.results, indices, strict=True)}
            value = self.evaluator.result(op, here, {number: value})
            buffer, indices = op.operands[-1], [here[dim] for dim in range(len(here))]
        pointer = self.views[buffer]
        offset = mlir.constant(0)
        for index, step in zip(indices, pointer.steps, strict=True):
            offset = memory.plus(offset, memory.times(index, step))
        memory.store(pointer, offset, value)


def _plain(expression: mlir.AffineExpr) -> int:
    dim = mlir.plain_dim(expression)
    assert dim is not None
    return dim


def difference_of(found: Gathered) -> mlir.Op:
    """In the body of the weights: the subtraction of a row's maximum."""
    op = found.one("weights")
    number = next(n for n, operand in enumerate(op.operands) if operand == found.one("top").operands[-1])
    (user,) = [user for user, _ in mlir.uses(mlir.block_of(op).arguments[number])]
    return user
