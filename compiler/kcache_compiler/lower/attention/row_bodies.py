"""Per-row code of attention kernels: masks and weights of scores, results from sums.

Clones the bodies of the program's operations at any index, for CPUs and GPUs. ``passes/attention/match.py``
gives each operation its role:

- ``before``: elementwise producers of operands; ``prepared``: copies of queries, keys or values;
- ``scores``: the contraction of queries and keys; ``top``: the maximum of each row of scores;
- ``weights``: exp of a score minus its row's maximum; ``total``: the sum of a row's weights;
- ``share``: weights divided by their total; ``all``, ``guarded``: the test whether all scores of a row are
  -inf, and the weights with 0 where they are;
- ``mixed``: the contraction of weights and values; ``tail``: elementwise consumers of its result.
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

_NEGATIVE_INFINITY = {"f32": "0xFF800000", "f64": "0xFFF0000000000000"}

#: A builder of an operation on floats.
FloatOp: TypeAlias = Callable[..., mlir.Value]


class RowCode(ABC):
    """Emits code at the insertion point; ``views`` are the pointers of the buffers that bodies access."""

    #: The flags of a row's maximum.
    maximum_flags = COMBINERS["arith.maximumf"]

    def __init__(
        self, attention: Gathered, views: dict[mlir.Value, Pointer], scalars: dict[mlir.Value, mlir.Value]
    ) -> None:
        self.attention, self.views = attention, views
        makers = {op.operands[-1]: op for op in attention.roles.get("before", ())}
        self.evaluator = Evaluator(makers, views, scalars)
        self.kind = mlir.type_of(attention.wide)

    @abstractmethod
    def value(self, formula: Formula) -> mlir.Value:
        """The i64 of a formula."""

    def delinearize(self, axes: list[Walked], number: mlir.Value) -> Coordinates:
        """The index on each of the axes, outermost first, of a linear index into their iteration space."""
        place: Coordinates = {}
        for axis in reversed(axes[1:]):
            size = self.value(axis.size)
            place[axis.name] = arith.remui(number, size)
            number = arith.divui(number, size)
        return {**place, axes[0].name: number} if axes else {}

    def axes(self, *places: Coordinates) -> Coordinates:
        """The indices of all axes of the scores, 0 for axes of size 1."""
        indices = {
            axis: mlir.constant(0) for axis in self.attention.dims[self.attention.member("scores")].values()
        }
        for place in places:
            indices |= place
        return indices

    def place(self, op: mlir.Op, axes: Coordinates) -> Coordinates:
        return {dim: axes[axis] for dim, axis in self.attention.dims[op].items()}

    def float(self, build: FloatOp, operands: list[mlir.Value], fastmath: str = "") -> mlir.Value:
        """The result of ``build``, with the ``fastmath`` flags of an attribute's text."""
        return build(*operands, fastmath=mlir.attribute(fastmath)) if fastmath else build(*operands)

    def equal(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return arith.cmpf(arith.CmpFPredicate.OEQ, a, b)

    def choose(self, condition: mlir.Value, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return arith.select(condition, a, b)

    def negative_infinity(self) -> mlir.Value:
        literal = mlir.attribute(f"{_NEGATIVE_INFINITY[self.attention.wide]} : {self.attention.wide}")
        return arith.constant(self.kind, literal)

    def set_score(self, score: mlir.Value) -> None:
        """Set the score that bodies read."""
        buffer = self.attention.member("scores").operands[-1]
        element = mlir.element_type(buffer.type)
        if str(element) != self.attention.wide:
            score = arith.truncf(element, score)
        self.evaluator.known[buffer] = score

    def next_maximum(self, rows: Coordinates, key: mlir.Value, maximum: mlir.Value) -> mlir.Value:
        """The running maximum of a row, updated by the current score, which is that of ``key``."""
        op = self.attention.member("top")
        place = self.place(op, self.axes(rows, {self.attention.keys[0].name: key}))
        last = len(list(op.operands)) - 1
        mapping = self.evaluator.arguments(op, place, {last: maximum})
        updated = memory.clone_body(mlir.block_of(op), mapping, self.views, place)[0]
        operation = mlir.definition(updated)
        operation.attributes["fastmath"] = mlir.attribute(self.maximum_flags)
        return updated

    def weight(self, rows: Coordinates, key: mlir.Value, subtrahend: mlir.Value) -> mlir.Value:
        """The weight of the current score, at ``key``: exp of the score minus ``subtrahend``."""
        op = self.attention.member("weights")
        number_of_top = next(
            number
            for number, operand in enumerate(op.operands)
            if operand == self.attention.member("top").operands[-1]
        )
        place = self.place(op, self.axes(rows, {self.attention.keys[0].name: key}))
        return self.evaluator.result(op, place, {number_of_top: subtrahend})

    def summed(self, total: mlir.Value, weight: mlir.Value) -> mlir.Value:
        return self.float(arith.addf, [total, weight], COMBINERS["arith.addf"])

    def rescaling(self, old_maximum: mlir.Value, top: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
        """After an update of the running maximum to ``top``: what is subtracted from scores, and the factor
        that rescales the sums so far.
        """
        subtrahend, low = self.subtrahend(top)
        factor = after(
            self.attention.member("weights"),
            difference_of(self.attention).results[0],
            self.float(arith.subf, [old_maximum, top]),
        )
        unchanged = self.equal(old_maximum, top)
        return subtrahend, self.choose(arith.ori(low, unchanged), mlir.float_constant(1, self.kind), factor)

    def subtrahend(self, top: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
        """The value that weights subtract, and whether it is not ``top``, which is -inf then."""
        low = self.equal(top, self.negative_infinity())
        return self.choose(low, mlir.float_constant(0, self.kind), top), low

    @property
    def divides_results(self) -> bool:
        """Whether only operations on the result divide by the totals."""
        return not ("share" in self.attention.roles or "guarded" in self.attention.roles)

    def total(self, masked: mlir.Value, total: mlir.Value) -> mlir.Value:
        """The divisor of the sums of a row; for a row of -inf only, the value that the program yields."""
        if "guarded" in self.attention.roles:
            return self.choose(masked, mlir.float_constant(1, self.kind), total)
        nan = mlir.float_constant(float("nan"), self.kind)
        empty = total if self.divides_results else mlir.float_constant(1, self.kind)
        without_total = self.choose(self._no_keys(), empty, nan)
        return self.choose(masked, without_total, total)

    def _no_keys(self) -> mlir.Value:
        keys = self.value(self.attention.size("keys"))
        return arith.cmpi(arith.CmpIPredicate.eq, keys, mlir.constant(0))

    def quotient(self, masked: mlir.Value, total: mlir.Value, sum_: mlir.Value) -> mlir.Value:
        """The result for a sum of weighted values."""
        if "total" in self.attention.roles and not self.divides_results:
            return self.float(arith.divf, [sum_, total])
        value = self.choose(masked, total, sum_)
        self.evaluator.known[self.attention.member("total").operands[-1]] = total
        return value

    def result(self, value: mlir.Value, axes: Coordinates, columns: Coordinates) -> None:
        """Apply the operations on the result to one element and store it."""
        mixed = self.attention.member("mixed")
        place = {**self.place(mixed, axes), **columns}
        for dim in range(len(mlir.iterator_types(mixed))):
            place.setdefault(dim, mlir.constant(0))
        element = mlir.element_type(mixed.operands[-1].type)
        if str(element) != self.attention.wide:
            value = arith.truncf(element, value)
        buffer, maps = mixed.operands[-1], mlir.indexing_maps(mixed)
        indices = [place[_plain(result)] for result in maps[-1].results]
        for op in self.attention.roles.get("tail", ()):
            number = next(n for n, operand in enumerate(op.operands) if operand == buffer)
            access = mlir.indexing_maps(op)[number]
            loop_indices = {
                _plain(result): index for result, index in zip(access.results, indices, strict=True)
            }
            value = self.evaluator.result(op, loop_indices, {number: value})
            buffer, indices = op.operands[-1], [loop_indices[dim] for dim in range(len(loop_indices))]
        pointer = self.views[buffer]
        offset = mlir.constant(0)
        for index, step in zip(indices, pointer.steps, strict=True):
            offset = memory.plus(offset, memory.times(index, step))
        memory.store(pointer, offset, value)


def _plain(expression: mlir.AffineExpr) -> int:
    dim = mlir.plain_dim(expression)
    assert dim is not None
    return dim


def difference_of(attention: Gathered) -> mlir.Op:
    """The subtraction of a row's maximum in the body of the weights."""
    op = attention.member("weights")
    number = next(
        n for n, operand in enumerate(op.operands) if operand == attention.member("top").operands[-1]
    )
    (user,) = [user for user, _ in mlir.uses(mlir.block_of(op).arguments[number])]
    return user
