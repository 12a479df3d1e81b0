"""Elementwise fusion of ``linalg.generic`` operations on tensors.

``fuse`` merges a producer into its consumer if every element is still computed once, if computing an element
is only a read (copies, broadcasts, constants, indices), or if recomputing it costs less than reading it back.
A producer is not merged into a loop that would recompute it for each iteration of a contraction or a
broadcast. Values do not change: every operation keeps its type and its order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.builders import inline_body, move_body
from kcache_compiler.mlir.dialects import linalg
from kcache_compiler.passes.fusion.body_forms import FREE, Form, Forms, FusibleOp, fused_maps
from kcache_compiler.passes.fusion.chain_boundaries import LONG, Cuts
from kcache_compiler.schedule.choices import FuseLimits, parse_choices
from kcache_compiler.types import CompileOptions

#: Operations that take a cycle or less an element: few of them are computed again.
SIMPLE = frozenset(
    f"arith.{name}"
    for name in ("addf", "subf", "mulf", "negf", "addi", "subi", "cmpf", "cmpi", "select", "uitofp")
)


@dataclass(frozen=True)
class GenericOp:
    """A ``linalg.generic`` on tensors: operands, indexing maps, and whether all its loops are parallel."""

    op: mlir.Op
    inputs: tuple[mlir.Value, ...]
    outputs: tuple[mlir.Value, ...]
    maps: tuple[mlir.AffineMap, ...]
    parallel: bool

    @property
    def body(self) -> mlir.Block:
        return mlir.block_of(self.op)


def read_generic(op: mlir.Op) -> GenericOp:
    inputs = mlir.input_count(op)
    operands = tuple(op.operands)
    maps = tuple(mlir.indexing_maps(op))
    parallel = all("parallel" in kind for kind in mlir.iterator_types(op))
    return GenericOp(op, operands[:inputs], operands[inputs:], maps, parallel)


def separate_destinations(module: mlir.Module, target: Target) -> None:
    """Duplicate fills and empty tensors for each user, so that bufferization inserts no copies.

    For CPUs fills move to their user: they share a launch unless another one, such as attention, is between
    them.

    After destinations are known this is more than speed: a fill that two results share is put into the
    buffer of one of them, and what the other leaves there would be copied back over it.
    """
    main = mlir.main_function(module)
    for op in mlir.named(main, "linalg.fill", "linalg.generic", "bufferization.materialize_in_destination"):
        _own_destinations(op, moves=not isinstance(target, Device))


def _own_destinations(op: mlir.Op, moves: bool) -> None:
    """Give ``op`` fills and empty tensors of its own; ``moves``: fills come right before it."""
    if mlir.name_of(op) == "bufferization.materialize_in_destination":
        numbers = range(1)  # its source; the destination is the caller's buffer
    else:
        numbers = range(len(op.operands) - len(op.results), len(op.operands))
    for number in numbers:
        source = mlir.defining(op.operands[number])
        if source is None or not (mlir.name_of(source) == "tensor.empty" or _is_fill(source)):
            continue
        if mlir.used_more_than_once(op.operands[number]):
            with mlir.before(op):
                source = mlir.clone(source)
            op.operands[number] = source.results[0]
        if mlir.name_of(source) != "tensor.empty":
            if moves:
                source.move_before(op)
            _own_destinations(source, moves)


def _is_fill(op: mlir.Op) -> bool:
    """Writes a scalar everywhere: named, or generic without a tensor to read."""
    if mlir.name_of(op) == "linalg.fill":
        return True
    if mlir.name_of(op) != "linalg.generic" or len(op.results) != 1:
        return False
    generic = read_generic(op)
    reads = any(mlir.is_tensor(operand.type) for operand in generic.inputs)
    return generic.parallel and not reads and not list(generic.body.arguments[-1].uses)


def fuse(module: mlir.Module, target: Target, options: CompileOptions) -> None:
    """Fuse every ``linalg.generic`` of ``main`` with its producers, in program order."""
    main = mlir.main_function(module)
    ops = mlir.named(main, "linalg.generic")
    long = len(ops) >= LONG
    limits = parse_choices(options.schedule).fuse_limits
    fuse_all(ops, limits, long, ordered=long and not isinstance(target, Device))
    for op in reversed(mlir.named(main, "linalg.generic", "linalg.fill", "tensor.empty")):
        if not any(list(result.uses) for result in op.results):
            op.erase()


def fuse_all(ops: Sequence[mlir.Op], limits: FuseLimits, long: bool, ordered: bool = False) -> None:
    """Fuse each of ``ops``, which are in program order, with those before it.

    In a ``long`` program code that would be written again is copied, which changes none of it. Where
    ``ordered``, operands of commutative operations are in one order, as they are anyway in long chains.
    """
    if ordered:
        order_operands(ops, longer=True)
    forms = Forms(limits, long)
    read = [forms.read(op) for op in ops]
    enough = len(ops) >= LONG
    cuts = Cuts([_fusible_op(op, form) for op, form in zip(ops, read, strict=True)] if enough else [], limits)
    for position in order_operands(ops) if cuts.found and not ordered else ():
        read[position] = forms.read(ops[position])
    fusion = _Fusion(limits, forms, cuts, long)
    for position, op in enumerate(ops):
        cuts.fused(position, fusion.fused(_fusible_op(op, read[position])))


def _fusible_op(op: mlir.Op, form: Form) -> FusibleOp:
    operands = tuple(op.operands)
    return FusibleOp(op, operands[: form.inputs], operands[form.inputs :], form)


class _Fusion:
    """Operations in program order, each with its fused producers.

    The producers of one are chosen before any code is written; code that an earlier operation of equal form
    has by then is copied from there.
    """

    def __init__(self, limits: FuseLimits, forms: Forms, cuts: Cuts, long: bool) -> None:
        self._limits = limits
        self._forms = forms
        self._cuts = cuts
        self._long = long
        #: By their results: no fusion changes them any more.
        self._known: dict[mlir.Value, FusibleOp] = {}
        self._written: dict[Form, mlir.Op] = {}

    def fused(self, start: FusibleOp) -> FusibleOp:
        """The operation that computes ``start``, with all producers that it may compute itself."""
        consumer, taken = start, list[tuple[int, FusibleOp]]()
        while (known := self._fusible(consumer, start)) is not None:
            number, producer, form = known
            if form is None:
                merged = _merge(self._write(start, taken, consumer, stays=False), number, producer)
                start = consumer = _fusible_op(merged, self._forms.read(merged))
                taken = []
                continue
            taken.append((number, producer))
            kept = (*consumer.inputs[:number], *consumer.inputs[number + 1 :])
            consumer = replace(consumer, inputs=(*kept, *producer.inputs), form=form)
        output = self._write(start, taken, consumer)
        self._known.update((result, output) for result in output.op.results)
        return output

    def _fusible(self, consumer: FusibleOp, start: FusibleOp) -> tuple[int, FusibleOp, Form | None] | None:
        """The number of an operand of ``consumer``, its producer if that may be fused, and their merged form.

        The module still contains ``start`` in place of ``consumer``.
        """
        for number, operand in enumerate(consumer.inputs):
            producer = self._known.get(operand)
            if producer is None or self._cuts.ends(operand):
                continue
            step = self._forms.fuse(consumer.form, number, producer.form)
            if not step.may or not mlir.same_block(producer.op, consumer.op):
                continue
            if step.always or self._recompute_pays(operand, producer, consumer, start):
                return number, producer, step.form
        return None

    def _recompute_pays(
        self, value: mlir.Value, producer: FusibleOp, consumer: FusibleOp, start: FusibleOp
    ) -> bool:
        """Whether recomputing ``value`` in each reader is cheaper than storing and loading it.

        That is so of a value with one reader, and of a few simple operations on one element of equal rank if
        every reader reads each element once.
        """
        limits = self._limits
        own, replaced_uses = (
            operation.inputs.count(value) + operation.outputs.count(value) for operation in (consumer, start)
        )
        some = itertools.islice(mlir.uses(value), limits.users + 1 + replaced_uses)
        others = [user for user, _ in some if user != start.op]
        if len(others) + own <= 1:
            return True
        counted = [name for name in producer.form.names if name not in FREE]
        if len(counted) > limits.simple or not set(counted) <= SIMPLE or len(others) + own > limits.users:
            return False
        rank = producer.form.maps[-1].n_dims
        if sum(len(entry.results) == rank for entry in producer.form.maps[:-1]) > 1:
            return False
        readers = [consumer] if own else []
        for user in others:
            if mlir.name_of(user) != "linalg.generic" or not mlir.same_block(user, producer.op):
                return False
            readers.append(_fusible_op(user, self._forms.read(user)))
        return all(_reads_once(reader, value) for reader in readers)

    def _write(
        self, start: FusibleOp, taken: list[tuple[int, FusibleOp]], consumer: FusibleOp, stays: bool = True
    ) -> FusibleOp:
        """Replace ``start`` by ``consumer``, into which the producers ``taken`` are fused, in the module.

        If it ``stays`` there, others of equal form are copied from it.
        """
        if not taken:
            return start
        known = self._written.get(consumer.form)
        if known is None:
            op = start
            for number, producer in taken:
                merged = _merge(op, number, producer)
                op = _fusible_op(merged, self._forms.fuse(op.form, number, producer.form).form or op.form)
            if self._long and stays:
                self._written[consumer.form] = op.op
            return op
        with mlir.before(start.op):
            copy = mlir.clone(known)
        operands = copy.operands
        for number, value in enumerate([*consumer.inputs, *consumer.outputs]):
            operands[number] = value
        _replace(start.op, copy)
        return replace(consumer, op=copy)


def _reads_once(reader: FusibleOp, value: mlir.Value) -> bool:
    pairs = zip(reader.form.maps, reader.inputs, strict=False)
    maps = [entry for entry, operand in pairs if operand == value]
    return bool(maps) and all(mlir.is_permutation(entry) for entry in maps)


def _merge(consumer: FusibleOp, number: int, producer: FusibleOp) -> mlir.Op:
    """One generic that computes ``consumer`` with operand ``number`` computed in place."""
    through = consumer.form.maps[number]
    kept = [position for position in range(len(consumer.inputs)) if position != number]
    inputs = [*(consumer.inputs[position] for position in kept), *producer.inputs]
    maps = fused_maps(consumer.form, number, producer.form)
    with mlir.before(consumer.op):
        fused = linalg.GenericOp(
            [result.type for result in consumer.op.results],
            inputs,
            list(consumer.outputs),
            mlir.map_attrs(maps),
            consumer.op.attributes["iterator_types"],
        ).operation
    block = mlir.new_block(fused, 0, [mlir.element_of(value.type) for value in [*inputs, *consumer.outputs]])
    arguments = list(block.arguments)
    producer_block, own = mlir.block_of(producer.op), mlir.block_of(consumer.op)
    with mlir.at_end(block):
        inner = dict(zip(producer_block.arguments, arguments[len(kept) : len(inputs)], strict=False))
        computed = inline_body(producer_block, inner, lambda axis: _index(through, axis))[0]
        outer: dict[mlir.Value, mlir.Value] = {own.arguments[number]: computed}
        for position, argument in zip(kept, arguments, strict=False):
            outer[own.arguments[position]] = argument
        for position, argument in enumerate(arguments[len(inputs) :]):
            outer[own.arguments[len(consumer.inputs) + position]] = argument
    move_body(own, block, outer)
    _replace(consumer.op, fused)
    return fused


def _replace(op: mlir.Op, result: mlir.Op) -> None:
    for old, new in zip(op.results, result.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def _index(through: mlir.AffineMap, axis: int) -> mlir.Value:
    """The producer's index ``axis`` inside the consumer, which reads it through the map ``through``."""
    return mlir.emit_affine(through.results[axis])


#: Commutative operations, up to the bits of a NaN.
_TURNS = frozenset(
    {
        *(f"arith.{name}" for name in ("addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf")),
        *(f"arith.{name}" for name in ("addi", "muli", "andi", "ori", "xori")),
        *(f"arith.{name}" for name in ("maxsi", "maxui", "minsi", "minui")),
        *("complex.add", "complex.mul"),
    }
)


def order_operands(generics: Sequence[mlir.Op], longer: bool = False) -> list[int]:
    """Have each ``linalg.generic`` of one such operation take what was computed last first; the places of
    those that are written in another way.

    Where ``longer``, also those that go on with its result alone: sums of small floats, which are rounded.
    """
    positions = {result: position for position, generic in enumerate(generics) for result in generic.results}
    return [position for position, generic in enumerate(generics) if _order(generic, positions, longer)]


def _order(generic: mlir.Op, positions: dict[mlir.Value, int], longer: bool) -> bool:
    if len(generic.operands) != 3 or len(generic.results) != 1:  # two results: a scan, which has one so far
        return False
    block = mlir.block_of(generic)
    body = mlir.operations(block)
    if mlir.name_of(body[0]) not in _TURNS or not (len(body) == 2 or (longer and _goes_on(generic))):
        return False
    first, second, _ = block.arguments
    read = list(body[0].operands)
    if first.type != second.type or read not in ([first, second], [second, first]):
        return False
    maps = mlir.indexing_maps(generic)
    inputs = list(generic.operands)[:2]
    swapped, later = read[0] != first, positions.get(inputs[0], -1) < positions.get(inputs[1], -1)
    if swapped:
        body[0].operands[0], body[0].operands[1] = first, second
    if later:
        generic.operands[0], generic.operands[1] = inputs[1], inputs[0]
        generic.attributes["indexing_maps"] = mlir.map_attrs([maps[1], maps[0], maps[2]])
    return swapped or later


def _goes_on(generic: mlir.Op) -> bool:
    """Elementwise, and what it reads is read by the first operation of its body alone."""
    if not all("parallel" in kind for kind in mlir.iterator_types(generic)):
        return False
    return [len(list(argument.uses)) for argument in mlir.block_of(generic).arguments] == [1, 1, 0]
