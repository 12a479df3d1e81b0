"""Attention among structured operations on tensors: which of them are one, and what each is to it.

``softmax(scores(queries x keys)) x values`` is found by what operations compute, not by their names in some
framework: a contraction, elementwise work on its result, the maximum of each row, ``exp`` of the difference,
the sum of each row, the quotient, and a contraction over the same axis. Its operations are marked and stay as
they are; ``codegen/attention`` makes one launch of them if they are still together on buffers. Where the
scores or the weights have other readers nothing is marked, nor under numerics ``strict``.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.gemm.recognize import read_products
from kcache_compiler.codegen.stage import Unit
from kcache_compiler.schedule.fuse import Generic, read_generic
from kcache_compiler.schedule.reach import Reach, Reader

#: The attribute of a marked operation: the number of its attention and its role.
MARK = "kcache.attention"
#: On the contraction with the values: how many operations are marked in all.
COUNT = "kcache.members"
#: On what prepares an operand of the scores: the number that it is multiplied by.
SCALE = "kcache.scale"

#: On the same: row axis, shift, limit of a causal mask, and whether it is added (``reach.py``).
REACH = "kcache.reach"

#: Operations of a body that may be computed again for each score, and how many.
CHEAP = frozenset(
    ["linalg.index", "linalg.yield"]
    + [f"arith.{one}" for one in ("constant", "index_cast", "cmpi", "cmpf", "select", "andi", "ori", "xori")]
    + [f"arith.{one}" for one in ("addi", "subi", "addf", "subf", "mulf", "negf", "extf", "extui", "uitofp")]
)
CHEAP_LIMIT = 10
#: Operations of a body that may follow on the result.
TAIL_LIMIT = 12
_NEGATIVE_INFINITY = float("-inf")


@dataclass
class _Attention:
    """What is found so far; ``members`` with their roles, in the order in which they were found."""

    scores: Generic
    members: dict[Any, str] = field(default_factory=dict[Any, str])
    scales: dict[Any, float] = field(default_factory=dict[Any, float])
    reach: Reach | None = None
    _axes: dict[Any, tuple[int, ...] | None] = field(default_factory=dict[Any, "tuple[int, ...] | None"])

    def add(self, role: str, *operations: mlir.Op) -> None:
        self.members |= dict.fromkeys(operations, role)

    def axes(self, value: mlir.Value) -> tuple[int, ...] | None:
        """For each axis of ``value`` the axis of the scores that it is; None where it is no such tensor."""
        if value == self.scores.op.results[0]:
            return tuple(range(len(self.scores.maps[-1].results)))
        if value not in self._axes:
            generic = _elementwise(value)
            self._axes[value] = None if generic is None else self._result_axes(generic)
        return self._axes[value]

    def _result_axes(self, generic: Generic) -> tuple[int, ...] | None:
        dims = self.dims(generic)
        found = [dims.get(dim) for dim in range(generic.maps[-1].n_dims)]
        return None if not found or None in found else tuple(axis for axis in found if axis is not None)

    def dims(self, generic: Generic) -> dict[int, int]:
        """For each loop of ``generic`` the axis of the scores that it walks, where it walks one."""
        for operand, access in zip(generic.inputs, generic.maps, strict=False):
            plain = [mlir.plain_dim(result) for result in access.results]
            if not plain or None in plain or len(set(plain)) != len(plain):
                continue
            if (axes := self.axes(operand)) is not None:
                return {dim: axis for dim, axis in zip(plain, axes, strict=True) if dim is not None}
        return {}

    def leaf(self, generic: Generic, number: int) -> tuple[Any, ...]:
        """Operand ``number`` as it is read, in axes of the scores."""
        dims = self.dims(generic)
        walked = [mlir.plain_dim(result) for result in generic.maps[number].results]
        return (
            "operand",
            generic.inputs[number],
            tuple(None if dim is None else dims.get(dim) for dim in walked),
        )

    def term(self, generic: Generic, value: mlir.Value) -> Any:
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


def mark(unit: Unit) -> None:
    """Mark every attention of ``main``."""
    if unit.options.numerics == "strict":
        return
    main = mlir.main_function(unit.module)
    number = 0
    for mixed in mlir.named(main, "linalg.generic"):
        found = (
            None
            if not _sums_products(mixed) or MARK in mixed.attributes
            else _match(unit, read_generic(mixed))
        )
        if found is None:
            continue
        for operation, role in found.members.items():
            operation.attributes[MARK] = mlir.string_attr(f"{number} {role}")
        for operation, scale in found.scales.items():
            operation.attributes[SCALE] = mlir.attribute(f"{scale:.17e} : f64")
        if (reach := found.reach) is not None:
            text = f"{reach.row} {reach.shift} {reach.limit!r} {int(reach.added)}"
            mixed.attributes[REACH] = mlir.string_attr(text)
        mixed.attributes[COUNT] = mlir.int_attr(len(found.members))
        number += 1


def _match(unit: Unit, mixed: Generic) -> _Attention | None:
    for operand in mixed.inputs:
        found = _Match(unit, mixed, operand).run()
        if found is not None and _private(found):
            return found
    return None


class _Refused(Exception):
    """These operations are no attention."""


def _need(value: Any) -> Any:
    if value is None or value is False:
        raise _Refused
    return value


class _Match:
    """One attempt: ``operand`` of the contraction ``mixed`` as the weights."""

    def __init__(self, unit: Unit, mixed: Generic, operand: mlir.Value) -> None:
        self.unit = unit
        self.mixed = mixed
        self.operand = operand

    def run(self) -> _Attention | None:
        try:
            return self._run()
        except _Refused:
            return None

    def _run(self) -> _Attention:
        share, quotient = _quotient(_need(_elementwise(self.operand)))
        weights: Generic = _need(_elementwise(share.inputs[quotient[0]] if quotient else self.operand))
        argument, top_number = _need(_exponential(weights))
        top: Generic = _need(_reduction(weights.inputs[top_number]))
        scores: Generic = _need(_source(top))
        found = self.found = _Attention(scores)
        keys = self._key_axes(top)
        _need(self._reads_rows(weights, top_number, keys))
        wanted = found.term(weights, argument)
        raised = _need(_combined(top, "arith.maximumf"))
        _need(found.term(top, raised) == wanted and _fill_value(top.outputs[0]) == _NEGATIVE_INFINITY)
        found.add("scores", scores.op)
        _need(all(_fill_value(one.outputs[0]) == 0 for one in (scores, self.mixed)))
        found.add("top", top.op)
        found.add("weights", weights.op)
        if quotient:
            self._share(share, quotient, weights, top, keys, wanted)
        else:
            users = [user for user, _ in mlir.uses(weights.op.results[0]) if user != self.mixed.op]
            _need(len(users) == 1 and _reduction(users[0].results[0]) is not None)
            self._total(users[0].results[0], weights, keys)
        self._contracts(keys)
        found.add("mixed", self.mixed.op)
        self._absorb([weights, top])
        self._prepared()
        self._tail()
        self._masked(weights, argument, keys)
        return found

    def _key_axes(self, top: Generic) -> set[int]:
        dims = self.found.dims(top)
        _need(len(dims) == top.maps[-1].n_dims)
        kept = [mlir.plain_dim(result) for result in top.maps[-1].results]
        keys = {axis for dim, axis in dims.items() if dim not in kept}
        _need(len(keys) == 1)
        return keys

    def _reads_rows(
        self, generic: Generic, number: int, keys: set[int], source: Generic | None = None
    ) -> bool:
        """Operand ``number`` of ``generic`` is a reduction along the keys, read row for row."""
        reduced: Generic | None = source or _reduction(generic.inputs[number])
        if reduced is None:
            return False
        theirs, mine = self.found.dims(reduced), self.found.dims(generic)
        walked = [theirs.get(mlir.plain_dim(result)) for result in reduced.maps[-1].results]  # type: ignore[arg-type]
        read = [mine.get(mlir.plain_dim(result)) for result in generic.maps[number].results]  # type: ignore[arg-type]
        every = set(range(len(self.found.scores.maps[-1].results)))
        return walked == read and None not in read and set(walked) == every - keys

    def _share(
        self,
        share: Generic,
        quotient: tuple[int, int, mlir.Value | None],
        weights: Generic,
        top: Generic,
        keys: set[int],
        wanted: Any,
    ) -> None:
        _, total_number, guard = quotient
        _need(self.found.axes(share.inputs[quotient[0]]) is not None)
        _need(self._reads_rows(share, total_number, keys))
        self._total(share.inputs[total_number], weights, keys)
        self.found.add("share", share.op)
        if guard is not None:
            self._guard(share, guard, top, keys, wanted)
            self.found.members[share.op] = "guarded"

    def _total(self, value: mlir.Value, weights: Generic, keys: set[int]) -> None:
        total: Generic = _need(_reduction(value))
        _need(_argument(total, _need(_combined(total, "arith.addf"))) == 0 and len(total.inputs) == 1)
        _need(total.inputs[0] == weights.op.results[0] and _fill_value(total.outputs[0]) == 0)
        kept = [mlir.plain_dim(result) for result in total.maps[-1].results]
        _need({axis for dim, axis in self.found.dims(total).items() if dim not in kept} == keys)
        self.found.add("total", total.op)

    def _guard(self, share: Generic, guard: mlir.Value, top: Generic, keys: set[int], wanted: Any) -> None:
        """A row of nothing but -inf gives zeros: its maximum is -inf, or so is each of its scores."""
        if _argument(share, guard) is None:
            self._is_low(share, guard, top, keys)
            return
        number = _need(_argument(share, guard))
        every = _reduction(share.inputs[number])
        if every is not None:
            compared = _need(_combined(every, "arith.andi"))
            left = _need(_compared_with_low(every, compared))
            _need(self.found.term(every, left) == wanted and self._reads_rows(share, number, keys))
            _need(_fill_value(every.outputs[0]) == 1)
            self.found.add("all", every.op)
            return
        low: Generic = _need(_elementwise(share.inputs[number]))
        _need(low.inputs[0] == top.op.results[0] or low.inputs[-1] == top.op.results[0])
        compared = mlir.operations(low.body)[-1].operands[0]
        left = _argument(low, _need(_compared_with_low(low, compared)))
        _need(left is not None and low.inputs[left] == top.op.results[0] and mlir.is_identity(low.maps[left]))
        dims = self.found.dims(share)
        read = [dims.get(mlir.plain_dim(result)) for result in share.maps[number].results]  # type: ignore[arg-type]
        walked = [self.found.dims(top).get(mlir.plain_dim(r)) for r in top.maps[-1].results]  # type: ignore[arg-type]
        _need(read == walked)
        self.found.add("all", low.op)

    def _is_low(self, share: Generic, guard: mlir.Value, top: Generic, keys: set[int]) -> None:
        number = _need(_argument(share, _need(_compared_with_low(share, guard))))
        _need(share.inputs[number] == top.op.results[0] and self._reads_rows(share, number, keys))

    def _contracts(self, keys: set[int]) -> None:
        """The second contraction sums over the keys, and over nothing else."""
        dims = self.found.dims(Generic(self.mixed.op, (self.operand,), (), self._weight_maps(), False))
        kept = [mlir.plain_dim(result) for result in self.mixed.maps[-1].results]
        summed = [dim for dim in range(self.mixed.maps[-1].n_dims) if dim not in kept]
        _need([dims.get(dim) for dim in summed] == list(keys))
        every = set(range(len(self.found.scores.maps[-1].results)))
        _need(set(dims.values()) == every and None not in kept)

    def _weight_maps(self) -> tuple[Any, ...]:
        return tuple(m for m, v in zip(self.mixed.maps, self.mixed.inputs, strict=False) if v == self.operand)

    def _absorb(self, readers: list[Generic]) -> None:
        """What computes the scores that are compared, and cheap producers of masks."""
        waiting = [one for reader in readers for one in reader.inputs]
        while waiting:
            value = waiting.pop()
            generic = _elementwise(value)
            if generic is None or generic.op in self.found.members:
                continue
            depends = self.found.axes(value) is not None
            names = [mlir.name_of(op) for op in mlir.walk(generic.op)[1:]]
            cheap = set(names) <= CHEAP and len(names) <= CHEAP_LIMIT and self._saves(generic)
            users = [user for user, _ in mlir.uses(value)]
            if depends or (cheap and all(user in self.found.members for user in users)):
                _need(_plain(generic))
                self.found.add("before", generic.op)
                waiting += generic.inputs

    def _saves(self, generic: Generic) -> bool:
        """Its result would be as large as a mask, or it reads nothing."""
        reads = any(access.results for access in generic.maps[:-1])
        return len(generic.maps[-1].results) > 1 or not reads

    def _prepared(self) -> None:
        """Operands of the scores that are only widened or multiplied by a number, values that are widened."""
        values = [one for one in self.mixed.inputs if one != self.operand]
        for operand in [*self.found.scores.inputs, *values]:
            generic = _elementwise(operand)
            if generic is None or len(list(mlir.uses(operand))) != 1 or generic.op in self.found.members:
                continue
            scale = _scaled(generic)
            if scale is not None and (scale == 1 or operand not in values):
                self.found.add("prepared", generic.op)
                self.found.scales[generic.op] = scale

    def _tail(self) -> None:
        """What follows on the result, element for element."""
        value = self.mixed.op.results[0]
        dims = self.found.dims(Generic(self.mixed.op, (self.operand,), (), self._weight_maps(), False))
        axes = [dims.get(mlir.plain_dim(result)) for result in self.mixed.maps[-1].results]  # type: ignore[arg-type]
        while True:
            users = [user for user, _ in mlir.uses(value)]
            generic = (
                _elementwise(users[0].results[0]) if len(users) == 1 and len(users[0].results) == 1 else None
            )
            if generic is None or not _plain(generic) or generic.op in self.found.members:
                break
            names = [mlir.name_of(op) for op in mlir.walk(generic.op)[1:]]
            numbers = [number for number, one in enumerate(generic.inputs) if one == value]
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

    def _remains(self, generic: Generic, number: int, named: dict[int | None, int | None]) -> bool:
        """Operand ``number`` of what follows on the result is there then: of what members leave on the way,
        that is the sum of each row alone, where it is read row for row and nothing was divided by it before.
        """
        owner = mlir.defining(generic.inputs[number])
        role = self.found.members.get(owner)
        if role is None or role in ("mixed", "tail"):
            return True
        if role != "total" or {"share", "guarded"} & set(self.found.members.values()):
            return False
        total: Generic = _need(_reduction(generic.inputs[number]))
        dims = self.found.dims(total)
        rows = [dims.get(mlir.plain_dim(result)) for result in total.maps[-1].results]  # type: ignore[arg-type]
        return rows == [named.get(mlir.plain_dim(result)) for result in generic.maps[number].results]

    def _masked(self, weights: Generic, argument: mlir.Value, keys: set[int]) -> None:
        """The keys that a causal mask leaves to each row."""
        scores = self.found.scores.op.results[0]

        def is_score(generic: Generic, value: mlir.Value) -> bool:
            product = _maker(value, "arith.mulf")
            if product is not None:
                for factor, other in (list(product.operands), list(reversed(product.operands))):
                    scale = constant(generic, factor)
                    if scale is not None and abs(scale) <= 1:
                        value = other
            number = _argument(generic, value)
            return number is not None and generic.inputs[number] == scores

        codes = self.unit.codes
        reader = Reader(next(iter(keys)), constant, lambda number: bool(codes) and codes.varies(number))
        self.found.reach = reader.reach(weights, self.found.dims(weights), argument, is_score)


def _private(found: _Attention) -> bool:
    """Nothing but members reads what members leave, except for the last of them."""
    last = [op for op, role in found.members.items() if role == "tail"][-1:]
    last = last or [op for op, role in found.members.items() if role == "mixed"]
    blocks = {op.operation.block for op in found.members}
    if len(blocks) != 1:
        return False
    return all(
        user in found.members
        for op in found.members
        if op != last[0]
        for result in op.results
        for user, _ in mlir.uses(result)
    )


def _generic(value: mlir.Value) -> Generic | None:
    owner = mlir.defining(value)
    if owner is None or mlir.name_of(owner) != "linalg.generic" or len(owner.results) != 1:
        return None
    return read_generic(owner)


def _elementwise(value: mlir.Value) -> Generic | None:
    """What makes ``value`` element by element and reads nothing that was there."""
    generic = _generic(value)
    if generic is None or not generic.parallel or not mlir.is_identity(generic.maps[-1]):
        return None
    reads = any(mlir.is_tensor(one.type) for one in generic.inputs) or mlir.named(generic.op, "linalg.index")
    return generic if reads and not list(generic.body.arguments[-1].uses) else None


def _plain(generic: Generic) -> bool:
    """Every operand is walked by loops alone, and the body reads nothing else."""
    every = [result for access in generic.maps for result in access.results]
    return all(mlir.plain_dim(result) is not None for result in every) and not any(
        mlir.name_of(op).startswith(("tensor.", "scf.", "func.")) and not _is_math(op)
        for op in mlir.walk(generic.op)
    )


def _is_math(op: mlir.Op) -> bool:
    return mlir.name_of(op) == "func.call"


def _sums_products(op: mlir.Op) -> bool:
    """A contraction, also of narrow floats, which are summed in wider ones later."""
    if read_products(op) is not None:
        return True
    generic = read_generic(op)
    if generic.parallel or len(generic.inputs) != 2 or len(generic.outputs) != 1:
        return False
    product = _maker(_combined(generic, "arith.addf"), "arith.mulf")
    if product is None or str(product.results[0].type) not in ("f16", "bf16"):
        return False
    return {_argument(generic, factor) for factor in product.operands} == {0, 1}


def _reduction(value: mlir.Value) -> Generic | None:
    generic = _generic(value)
    return None if generic is None or generic.parallel or _sums_products(generic.op) else generic


def _source(top: Generic) -> Generic | None:
    """The contraction whose elements reach ``top`` one by one."""
    waiting, seen = list(top.inputs), 0
    while waiting and seen < 64:
        value = waiting.pop()
        seen += 1
        generic = _generic(value)
        if generic is not None and _sums_products(generic.op):
            if len(generic.maps[-1].results) == top.maps[-1].n_dims:
                return generic
        elif generic is not None and generic.parallel:
            waiting += generic.inputs
    return None


def _yielded(generic: Generic) -> mlir.Value:
    return mlir.operations(generic.body)[-1].operands[0]


def _maker(value: mlir.Value | None, *names: str) -> mlir.Op | None:
    owner = None if value is None else mlir.defining(value)
    return owner if owner is not None and mlir.name_of(owner) in names else None


def _argument(generic: Generic, value: mlir.Value) -> int | None:
    """Which input of ``generic`` a value of its body is."""
    arguments = list(generic.body.arguments)[: len(generic.inputs)]
    return next((number for number, argument in enumerate(arguments) if argument == value), None)


def _quotient(share: Generic) -> tuple[Generic, tuple[int, int, mlir.Value | None] | None]:
    """Numbers of weight and total, and the condition under which the share is 0 instead; None for others."""
    value = _yielded(share)
    narrowed = _maker(value, "arith.truncf")
    value = value if narrowed is None else narrowed.operands[0]
    chosen, guard = _maker(value, "arith.select"), None
    if chosen is not None and constant(share, chosen.operands[1]) == 0:
        guard, value = chosen.operands[0], chosen.operands[2]
    division = _maker(value, "arith.divf")
    if division is None:
        return share, None
    numbers = [_argument(share, operand) for operand in division.operands]
    return share, (_need_int(numbers[0]), _need_int(numbers[1]), guard)


def _need_int(number: int | None) -> int:
    if number is None:
        raise _Refused
    return number


def _exponential(weights: Generic) -> tuple[mlir.Value, int] | None:
    """``exp(x - m)``: the value x, and which input m is."""
    call = _maker(_yielded(weights), "func.call")
    if call is None or str(call.attributes["callee"]) not in ("@kcm_exp_f32", "@kcm_exp_f64"):
        return None
    difference = _maker(call.operands[0], "arith.subf")
    if difference is None:
        return None
    number = _argument(weights, difference.operands[1])
    if number is None or len(list(difference.operands[1].uses)) != 1:
        return None
    return difference.operands[0], number


def _combined(generic: Generic, name: str) -> mlir.Value | None:
    """What ``name`` combines with what was there."""
    combiner = _maker(_yielded(generic), name)
    out = list(generic.body.arguments)[-1]
    if combiner is None or len(list(out.uses)) != 1:
        return None
    left, right = combiner.operands
    return right if left == out else left if right == out else None


def _compared_with_low(generic: Generic, value: mlir.Value) -> mlir.Value | None:
    """What ``value`` compares with -inf, and finds equal."""
    compare = _maker(value, "arith.cmpf")
    if compare is None or mlir.int_of(compare.attributes["predicate"]) != 1:
        return None
    left, right = compare.operands
    if constant(generic, right) == _NEGATIVE_INFINITY:
        return left
    return right if constant(generic, left) == _NEGATIVE_INFINITY else None


def _scaled(generic: Generic) -> float | None:
    """The number that an operand is multiplied by, after it was widened if it was."""
    value = _yielded(generic)
    scale = 1.0
    product = _maker(value, "arith.mulf")
    if product is not None:
        factors = [constant(generic, operand) for operand in product.operands]
        if (factors[0] is None) == (factors[1] is None):
            return None
        value = product.operands[0] if factors[0] is None else product.operands[1]
        scale = factors[1] if factors[0] is None else factors[0]
    widened = _maker(value, "arith.extf")
    value = value if widened is None else widened.operands[0]
    number = _argument(generic, value)
    if number is None or not mlir.is_permutation(generic.maps[number]) or scale is None:
        return None
    if str(_yielded(generic).type) not in ("f32", "f64") or scale != scale or abs(scale) == float("inf"):
        return None
    return scale


def _fill(value: mlir.Value) -> mlir.Op | None:
    owner = mlir.defining(value)
    if owner is None or mlir.name_of(owner) != "linalg.generic" or len(list(mlir.uses(value))) != 1:
        return None
    generic = read_generic(owner)
    return owner if generic.parallel and len(mlir.operations(generic.body)) == 1 else None


def _fill_value(value: mlir.Value) -> float | None:
    owner = _fill(value)
    return None if owner is None else constant(read_generic(owner), _yielded(read_generic(owner)))


def constant(generic: Generic, value: mlir.Value) -> float | None:
    """The number that a value of a body always is."""
    number = _argument(generic, value)
    owner = mlir.defining(value if number is None else generic.inputs[number])
    if owner is None or mlir.name_of(owner) != "arith.constant":
        return None
    text = re.sub(
        r"^dense<(.*)>$",
        r"\1",
        str(owner.attributes["value"]).rpartition(" : ")[0] or str(owner.attributes["value"]),
    )
    kind = str(mlir.element_of(owner.results[0].type))
    if text in ("true", "false"):
        return float(text == "true")
    try:
        if not text.startswith("0x"):
            return float(text)
        bits = int(text, 16)
        return struct.unpack(
            "<f" if kind == "f32" else "<d", bits.to_bytes(4 if kind == "f32" else 8, "little")
        )[0]
    except (ValueError, OverflowError):
        return None
