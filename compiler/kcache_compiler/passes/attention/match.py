"""One attempt to see an attention: from the contraction with the values back to the scores."""

from __future__ import annotations

from dataclasses import dataclass, field

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.attention.bodies import (
    NEGATIVE_INFINITY,
    NoMatch,
    argument_of,
    combined,
    compared_with_low,
    constant,
    elementwise,
    exponential,
    fill_value,
    maker,
    need,
    plain,
    read_quotient,
    reduction,
    scaled,
    source_of,
)
from kcache_compiler.passes.attention.causal_mask import Reach, Reader
from kcache_compiler.passes.fusion.elementwise import GenericOp
from kcache_compiler.shapes.recovery import RecoveredSizes


@dataclass
class Attention:
    """What is found so far; ``members`` with their roles, in the order in which they were found."""

    scores: GenericOp
    members: dict[mlir.Op, str] = field(default_factory=dict[mlir.Op, str])
    scales: dict[mlir.Op, float] = field(default_factory=dict[mlir.Op, float])
    reach: Reach | None = None
    _axes: dict[mlir.Value, tuple[int, ...] | None] = field(
        default_factory=dict[mlir.Value, "tuple[int, ...] | None"]
    )

    def add(self, role: str, *operations: mlir.Op) -> None:
        self.members |= dict.fromkeys(operations, role)

    def axes(self, value: mlir.Value) -> tuple[int, ...] | None:
        """For each axis of ``value`` the axis of the scores that it is; None where it is no such tensor."""
        if value == self.scores.op.results[0]:
            return tuple(range(len(self.scores.maps[-1].results)))
        if value not in self._axes:
            generic = elementwise(value)
            self._axes[value] = None if generic is None else self._result_axes(generic)
        return self._axes[value]

    def _result_axes(self, generic: GenericOp) -> tuple[int, ...] | None:
        dims = self.dims(generic)
        results = [dims.get(dim) for dim in range(generic.maps[-1].n_dims)]
        return None if not results or None in results else tuple(axis for axis in results if axis is not None)

    def dims(self, generic: GenericOp) -> dict[int, int]:
        """For each loop of ``generic`` the axis of the scores that it walks, where it walks one."""
        for operand, access in zip(generic.inputs, generic.maps, strict=False):
            plain = [mlir.plain_dim(result) for result in access.results]
            if not plain or None in plain or len(set(plain)) != len(plain):
                continue
            if (axes := self.axes(operand)) is not None:
                return {dim: axis for dim, axis in zip(plain, axes, strict=True) if dim is not None}
        return {}

    def leaf(self, generic: GenericOp, number: int) -> tuple[object, ...]:
        """Operand ``number`` as it is read, in axes of the scores."""
        dims = self.dims(generic)
        walked = [mlir.plain_dim(result) for result in generic.maps[number].results]
        return (
            "operand",
            generic.inputs[number],
            tuple(None if dim is None else dims.get(dim) for dim in walked),
        )

    def term(self, generic: GenericOp, value: mlir.Value) -> object:
        """What a value of a body computes, comparable between bodies."""
        if (literal := constant(generic, value)) is not None:
            return ("constant", literal, str(value.type))
        owner = mlir.defining(value)
        if owner is None:
            return self.leaf(generic, list(generic.body.arguments).index(value))
        if mlir.name_of(owner) == "linalg.index":
            return ("index", self.dims(generic).get(mlir.int_of(owner.attributes["dim"])))
        operands = tuple(self.term(generic, operand) for operand in owner.operands)
        return (mlir.name_of(owner), mlir.attributes_text(owner), operands)


#: Operations of a body that may be computed again for each score, and how many.
CHEAP = frozenset(
    ["linalg.index", "linalg.yield"]
    + [
        f"arith.{name}"
        for name in ("constant", "index_cast", "cmpi", "cmpf", "select", "andi", "ori", "xori")
    ]
    + [
        f"arith.{name}"
        for name in ("addi", "subi", "addf", "subf", "mulf", "negf", "extf", "extui", "uitofp")
    ]
)
CHEAP_LIMIT = 10
#: Operations of a body that may follow on the result.
TAIL_LIMIT = 12


class Match:
    """One attempt: ``operand`` of the contraction ``mixed`` as the weights."""

    def __init__(self, codes: RecoveredSizes, mixed: GenericOp, operand: mlir.Value) -> None:
        self.codes = codes
        self.mixed = mixed
        self.operand = operand

    def run(self) -> Attention | None:
        try:
            return self._run()
        except NoMatch:
            return None

    def _run(self) -> Attention:
        """Match softmax and both contractions, from the weights back to the scores. Raises ``NoMatch``."""
        share, quotient = read_quotient(need(elementwise(self.operand)))
        weights: GenericOp = need(elementwise(share.inputs[quotient[0]] if quotient else self.operand))
        argument, top_number = need(exponential(weights))
        top: GenericOp = need(reduction(weights.inputs[top_number]))
        scores: GenericOp = need(source_of(top))
        result = self.found = Attention(scores)
        keys = self._key_axes(top)
        need(self._reads_rows(weights, top_number, keys))
        expected = result.term(weights, argument)
        raised = need(combined(top, "arith.maximumf"))
        need(result.term(top, raised) == expected and fill_value(top.outputs[0]) == NEGATIVE_INFINITY)
        result.add("scores", scores.op)
        need(all(fill_value(generic.outputs[0]) == 0 for generic in (scores, self.mixed)))
        result.add("top", top.op)
        result.add("weights", weights.op)
        if quotient:
            self._share(share, quotient, weights, top, keys, expected)
        else:
            users = [user for user, _ in mlir.uses(weights.op.results[0]) if user != self.mixed.op]
            need(len(users) == 1 and len(users[0].results) == 1)
            need(reduction(users[0].results[0]) is not None)
            self._total(users[0].results[0], weights, keys)
        self._contracts(keys)
        result.add("mixed", self.mixed.op)
        self._absorb([weights, top])
        self._prepared()
        self._tail()
        self._masked(weights, argument, keys)
        return result

    def _key_axes(self, top: GenericOp) -> set[int]:
        dims = self.found.dims(top)
        need(len(dims) == top.maps[-1].n_dims)
        kept = [mlir.plain_dim(result) for result in top.maps[-1].results]
        keys = {axis for dim, axis in dims.items() if dim not in kept}
        need(len(keys) == 1)
        return keys

    def _reads_rows(
        self, generic: GenericOp, number: int, keys: set[int], source: GenericOp | None = None
    ) -> bool:
        """Operand ``number`` of ``generic`` is a reduction along the keys, read row for row."""
        reduced: GenericOp | None = source or reduction(generic.inputs[number])
        if reduced is None:
            return False
        theirs, mine = self.found.dims(reduced), self.found.dims(generic)
        walked = [theirs.get(mlir.plain_dim(result)) for result in reduced.maps[-1].results]  # type: ignore[arg-type]
        read = [mine.get(mlir.plain_dim(result)) for result in generic.maps[number].results]  # type: ignore[arg-type]
        every = set(range(len(self.found.scores.maps[-1].results)))
        return walked == read and None not in read and set(walked) == every - keys

    def _share(
        self,
        share: GenericOp,
        quotient: tuple[int, int, mlir.Value | None],
        weights: GenericOp,
        top: GenericOp,
        keys: set[int],
        expected: object,
    ) -> None:
        _, total_number, guard = quotient
        need(self.found.axes(share.inputs[quotient[0]]) is not None)
        need(self._reads_rows(share, total_number, keys))
        self._total(share.inputs[total_number], weights, keys)
        self.found.add("share", share.op)
        if guard is not None:
            self._guard(share, guard, top, keys, expected)
            self.found.members[share.op] = "guarded"

    def _total(self, value: mlir.Value, weights: GenericOp, keys: set[int]) -> None:
        total: GenericOp = need(reduction(value))
        need(argument_of(total, need(combined(total, "arith.addf"))) == 0 and len(total.inputs) == 1)
        need(total.inputs[0] == weights.op.results[0] and fill_value(total.outputs[0]) == 0)
        kept = [mlir.plain_dim(result) for result in total.maps[-1].results]
        need({axis for dim, axis in self.found.dims(total).items() if dim not in kept} == keys)
        self.found.add("total", total.op)

    def _guard(
        self, share: GenericOp, guard: mlir.Value, top: GenericOp, keys: set[int], expected: object
    ) -> None:
        """A row of nothing but -inf gives zeros: its maximum is -inf, or so is each of its scores."""
        if argument_of(share, guard) is None:
            self._is_low(share, guard, top, keys)
            return
        number = need(argument_of(share, guard))
        every = reduction(share.inputs[number])
        if every is not None:
            compared = need(combined(every, "arith.andi"))
            left = need(compared_with_low(every, compared))
            need(self.found.term(every, left) == expected and self._reads_rows(share, number, keys))
            need(fill_value(every.outputs[0]) == 1)
            self.found.add("all", every.op)
            return
        low: GenericOp = need(elementwise(share.inputs[number]))
        need(low.inputs[0] == top.op.results[0] or low.inputs[-1] == top.op.results[0])
        compared = mlir.last(low.body).operands[0]
        left = argument_of(low, need(compared_with_low(low, compared)))
        need(left is not None and low.inputs[left] == top.op.results[0] and mlir.is_identity(low.maps[left]))
        dims = self.found.dims(share)
        read = [dims.get(mlir.plain_dim(result)) for result in share.maps[number].results]  # type: ignore[arg-type]
        walked = [self.found.dims(top).get(mlir.plain_dim(r)) for r in top.maps[-1].results]  # type: ignore[arg-type]
        need(read == walked)
        self.found.add("all", low.op)

    def _is_low(self, share: GenericOp, guard: mlir.Value, top: GenericOp, keys: set[int]) -> None:
        number = need(argument_of(share, need(compared_with_low(share, guard))))
        need(share.inputs[number] == top.op.results[0] and self._reads_rows(share, number, keys))

    def _contracts(self, keys: set[int]) -> None:
        """The second contraction sums over the keys, and over nothing else."""
        dims = self.found.dims(GenericOp(self.mixed.op, (self.operand,), (), self._weight_maps(), False))
        kept = [mlir.plain_dim(result) for result in self.mixed.maps[-1].results]
        summed = [dim for dim in range(self.mixed.maps[-1].n_dims) if dim not in kept]
        need([dims.get(dim) for dim in summed] == list(keys))
        every = set(range(len(self.found.scores.maps[-1].results)))
        need(set(dims.values()) == every and None not in kept)

    def _weight_maps(self) -> tuple[mlir.AffineMap, ...]:
        return tuple(m for m, v in zip(self.mixed.maps, self.mixed.inputs, strict=False) if v == self.operand)

    def _absorb(self, readers: list[GenericOp]) -> None:
        """What computes the scores that are compared, and cheap producers of masks."""
        waiting = [operand for reader in readers for operand in reader.inputs]
        while waiting:
            value = waiting.pop()
            generic = elementwise(value)
            if generic is None or generic.op in self.found.members:
                continue
            depends = self.found.axes(value) is not None
            names = [mlir.name_of(op) for op in mlir.walk(generic.op)[1:]]
            cheap = set(names) <= CHEAP and len(names) <= CHEAP_LIMIT and self._saves(generic)
            users = [user for user, _ in mlir.uses(value)]
            if depends or (cheap and all(user in self.found.members for user in users)):
                need(plain(generic))
                self.found.add("before", generic.op)
                waiting += generic.inputs

    def _saves(self, generic: GenericOp) -> bool:
        """Its result would be as large as a mask, or it reads nothing."""
        reads = any(access.results for access in generic.maps[:-1])
        return len(generic.maps[-1].results) > 1 or not reads

    def _prepared(self) -> None:
        """Operands of the scores that are only widened or multiplied by a number, values that are widened."""
        values = [value for value in self.mixed.inputs if value != self.operand]
        for operand in [*self.found.scores.inputs, *values]:
            generic = elementwise(operand)
            if generic is None or len(list(mlir.uses(operand))) != 1 or generic.op in self.found.members:
                continue
            scale = scaled(generic)
            if scale is not None and (scale == 1 or operand not in values):
                self.found.add("prepared", generic.op)
                self.found.scales[generic.op] = scale

    def _tail(self) -> None:
        """What follows on the result, element for element."""
        value = self.mixed.op.results[0]
        dims = self.found.dims(GenericOp(self.mixed.op, (self.operand,), (), self._weight_maps(), False))
        axes = [dims.get(mlir.plain_dim(result)) for result in self.mixed.maps[-1].results]  # type: ignore[arg-type]
        while True:
            users = [user for user, _ in mlir.uses(value)]
            generic = (
                elementwise(users[0].results[0]) if len(users) == 1 and len(users[0].results) == 1 else None
            )
            if generic is None or not plain(generic) or generic.op in self.found.members:
                break
            names = [mlir.name_of(op) for op in mlir.walk(generic.op)[1:]]
            numbers = [number for number, operand in enumerate(generic.inputs) if operand == value]
            if (
                len(names) > TAIL_LIMIT
                or len(numbers) != 1
                or not mlir.is_permutation(generic.maps[numbers[0]])
            ):
                break
            walked = [mlir.plain_dim(result) for result in generic.maps[numbers[0]].results]
            named = dict(zip(walked, axes, strict=True))
            if not all(self._remains(generic, other, named) for other in range(len(generic.inputs))):
                break
            self.found.add("tail", generic.op)
            value, axes = generic.op.results[0], [named.get(dim) for dim in range(len(axes))]

    def _remains(self, generic: GenericOp, number: int, named: dict[int | None, int | None]) -> bool:
        """Operand ``number`` of what follows on the result is there then: of what members leave on the way,
        that is the sum of each row alone, where it is read row for row and nothing was divided by it before.
        """
        owner = mlir.defining(generic.inputs[number])
        role = None if owner is None else self.found.members.get(owner)
        if role is None or role in ("mixed", "tail"):
            return True
        if role != "total" or {"share", "guarded"} & set(self.found.members.values()):
            return False
        total: GenericOp = need(reduction(generic.inputs[number]))
        dims = self.found.dims(total)
        rows = [dims.get(mlir.plain_dim(result)) for result in total.maps[-1].results]  # type: ignore[arg-type]
        return rows == [named.get(mlir.plain_dim(result)) for result in generic.maps[number].results]

    def _masked(self, weights: GenericOp, argument: mlir.Value, keys: set[int]) -> None:
        """The keys that a causal mask leaves to each row."""
        scores = self.found.scores.op.results[0]

        def is_score(generic: GenericOp, value: mlir.Value) -> bool:
            product = maker(value, "arith.mulf")
            if product is not None:
                for factor, other in (list(product.operands), list(reversed(product.operands))):
                    scale = constant(generic, factor)
                    if scale is not None and abs(scale) <= 1:
                        value = other
            number = argument_of(generic, value)
            return number is not None and generic.inputs[number] == scores

        codes = self.codes
        reader = Reader(next(iter(keys)), constant, lambda number: bool(codes) and codes.varies(number))
        self.found.reach = reader.reach(weights, self.found.dims(weights), argument, is_score)
