"""Elementwise fusion that repeats no work worth a thought: on ``linalg.generic`` over tensors.

A producer goes into its consumer when that costs nothing: every element is still computed once, computing
it is only reading (copies, broadcasts, constants, indices), or less than reading it back. Nothing is fused
into a loop that would compute it again for each step of a contraction or a broadcast. Values do not
change: every operation keeps its type and order.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.body import inline_body, move_body
from kcache_compiler.codegen.math.expand import length_of
from kcache_compiler.codegen.stage import Unit
from kcache_compiler.schedule.choices import FuseLimits, parse_choices
from kcache_compiler.schedule.cuts import LONG, Cuts
from kcache_compiler.schedule.order import order_operands

#: Operations cheap enough to be computed again for each read.
FREE = ("linalg.index", "linalg.yield", "arith.constant", "arith.index_cast")

#: Operations that take a cycle or less an element: few of them are computed again.
SIMPLE = frozenset(
    f"arith.{name}"
    for name in ("addf", "subf", "mulf", "negf", "addi", "subi", "cmpf", "cmpi", "select", "uitofp")
)


@dataclass(frozen=True)
class Generic:
    """A ``linalg.generic`` on tensors, read once."""

    op: mlir.Op
    inputs: tuple[mlir.Value, ...]
    outputs: tuple[mlir.Value, ...]
    maps: tuple[Any, ...]
    parallel: bool

    @property
    def body(self) -> mlir.Block:
        return mlir.block_of(self.op)

    @functools.cached_property
    def names(self) -> list[str]:
        """Of the operations of its body and of what is inside of them."""
        return [mlir.name_of(inner) for inner in mlir.walk(self.op)[1:]]

    @functools.cached_property
    def length(self) -> int:
        """How many operations its body has."""
        return len(mlir.operations(self.body))

    @functools.cached_property
    def expanded(self) -> int:
        """The same with those of the functions that it calls."""
        return sum(map(length_of, mlir.operations(self.body))) if "func.call" in self.names else self.length


def read_generic(op: mlir.Op) -> Generic:
    inputs = int(next(iter(op.attributes["operandSegmentSizes"])))
    operands = tuple(op.operands)
    maps = tuple(entry.value for entry in op.attributes["indexing_maps"])
    parallel = all("parallel" in str(kind) for kind in op.attributes["iterator_types"])
    return Generic(op, operands[:inputs], operands[inputs:], maps, parallel)


def unshare(unit: Unit) -> None:
    """Give each use of a fill or an empty tensor one of its own, so that no copy is needed later.

    After destinations are known this is more than speed: a fill that two results share is put into the
    buffer of one of them, and what the other leaves there would be copied back over it.
    """
    main = mlir.main_function(unit.module)
    for op in mlir.named(main, "linalg.fill", "linalg.generic", "bufferization.materialize_in_destination"):
        _own_destinations(op)


def _own_destinations(op: mlir.Op) -> None:
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
            _own_destinations(source)


def _is_fill(op: mlir.Op) -> bool:
    """Writes a scalar everywhere: named, or generic without a tensor to read."""
    if mlir.name_of(op) == "linalg.fill":
        return True
    if mlir.name_of(op) != "linalg.generic" or len(op.results) != 1:
        return False
    generic = read_generic(op)
    reads = any(mlir.is_tensor(operand.type) for operand in generic.inputs)
    return generic.parallel and not reads and not list(generic.body.arguments[-1].uses)


def fuse(unit: Unit) -> None:
    """Fuse every ``linalg.generic`` of ``main`` with its producers, in program order."""
    main = mlir.main_function(unit.module)
    limits = parse_choices(unit.options.schedule).fuse_limits
    known: dict[Any, Generic] = {}
    ops = mlir.named(main, "linalg.generic")
    cuts = Cuts([read_generic(op) for op in ops] if len(ops) >= LONG else [], limits)
    if cuts.found:
        order_operands(ops)
    for place, op in enumerate(ops):
        consumer = read_generic(op)
        while (found := _fusible(consumer, known, limits, cuts)) is not None:
            consumer = _merge(consumer, *found)
        known.update((result, consumer) for result in consumer.op.results)
        cuts.fused(place, consumer)
    for op in reversed(mlir.named(main, "linalg.generic", "linalg.fill", "tensor.empty")):
        if not any(list(result.uses) for result in op.results):
            op.erase()


def _fusible(
    consumer: Generic, known: dict[Any, Generic], limits: FuseLimits, cuts: Cuts
) -> tuple[int, Generic] | None:
    """An operand of ``consumer`` and what makes it, where that may be computed in place.

    ``known`` are the generics before it by their results, which no fusion changes any more.
    """
    for number, operand in enumerate(consumer.inputs):
        producer = known.get(operand)
        if producer is None or cuts.ends(operand):
            continue
        if _may_fuse(producer, consumer, number, limits):
            return number, producer
    return None


def _may_fuse(producer: Generic, consumer: Generic, number: int, limits: FuseLimits) -> bool:
    if not producer.parallel or len(producer.outputs) != 1 or not mlir.same_block(producer.op, consumer.op):
        return False
    if not mlir.is_identity(producer.maps[-1]) or list(producer.body.arguments[-1].uses):
        return False
    if not mlir.is_tensor(producer.op.results[0].type):
        return False
    if len(consumer.inputs) + len(producer.inputs) + len(consumer.outputs) > limits.operands:
        return False
    ops = producer.names
    if len(ops) + consumer.length > limits.body:
        return False
    if not _has_every_loop(_fused_maps(producer, consumer, number)):
        return False
    if "func.call" in ops and producer.expanded + consumer.expanded > limits.expanded:
        return False
    if consumer.parallel and all(name in FREE for name in ops):
        return True
    if not mlir.is_permutation(consumer.maps[number]):
        return False
    return not mlir.used_more_than_once(producer.op.results[0]) or _cheaper_than_memory(producer, ops, limits)


def _cheaper_than_memory(producer: Generic, ops: list[str], limits: FuseLimits) -> bool:
    """Computing an element again for each of its readers takes less than storing and loading it.

    That is so of a few simple operations on one element of equal rank, when every reader takes each once.
    """
    counted = [name for name in ops if name not in FREE]
    if len(counted) > limits.simple or not set(counted) <= SIMPLE:
        return False
    rank = producer.maps[-1].n_dims
    whole = [entry for entry in producer.maps[:-1] if len(entry.results) == rank]
    users = [user for user, _ in itertools.islice(mlir.uses(producer.op.results[0]), limits.users + 1)]
    return (
        len(whole) <= 1 and len(users) <= limits.users and all(_reads_once(user, producer) for user in users)
    )


def _reads_once(user: mlir.Op, producer: Generic) -> bool:
    if mlir.name_of(user) != "linalg.generic" or not mlir.same_block(user, producer.op):
        return False
    generic = read_generic(user)
    maps = [m for m, v in zip(generic.maps, generic.inputs, strict=False) if v == producer.op.results[0]]
    return bool(maps) and all(mlir.is_permutation(entry) for entry in maps)


def _fused_maps(producer: Generic, consumer: Generic, number: int) -> list[Any]:
    """Indexing maps of the fusion: inputs that stay, the producer's, outputs."""
    kept = [consumer.maps[position] for position in range(len(consumer.inputs)) if position != number]
    through = consumer.maps[number]
    taken = list(producer.maps[:-1])
    if not mlir.is_identity(through):
        taken = [mlir.compose(entry, through) for entry in taken]
    return [*kept, *taken, *consumer.maps[len(consumer.inputs) :]]


def _has_every_loop(maps: list[Any]) -> bool:
    """Every loop stands alone in some map, so that its extent can be read off an operand.

    It does not when a broadcast or a reversal is all that a reduction reads.
    """
    plain = {mlir.plain_dim(result) for entry in maps for result in entry.results}
    return set(range(maps[0].n_dims)) <= plain


def _merge(consumer: Generic, number: int, producer: Generic) -> Generic:
    """One generic that computes ``consumer`` with operand ``number`` computed in place."""
    through = consumer.maps[number]
    kept = [position for position in range(len(consumer.inputs)) if position != number]
    inputs = [*(consumer.inputs[position] for position in kept), *producer.inputs]
    maps = _fused_maps(producer, consumer, number)
    with mlir.before(consumer.op):
        fused = mlir.create(
            "linalg.generic",
            [*inputs, *consumer.outputs],
            [result.type for result in consumer.op.results],
            {
                "indexing_maps": mlir.map_attrs(maps),
                "iterator_types": consumer.op.attributes["iterator_types"],
                "operandSegmentSizes": mlir.attribute(f"array<i32: {len(inputs)}, {len(consumer.outputs)}>"),
            },
            regions=1,
        )
    block = mlir.new_block(fused, 0, [mlir.element_of(value.type) for value in [*inputs, *consumer.outputs]])
    arguments = list(block.arguments)
    with mlir.at_end(block):
        inner = dict(zip(producer.body.arguments, arguments[len(kept) : len(inputs)], strict=False))
        computed = inline_body(producer.body, inner, lambda axis: _index(through, axis))[0]
        outer: dict[Any, mlir.Value] = {consumer.body.arguments[number]: computed}
        for position, argument in zip(kept, arguments, strict=False):
            outer[consumer.body.arguments[position]] = argument
        for position, argument in enumerate(arguments[len(inputs) :]):
            outer[consumer.body.arguments[len(consumer.inputs) + position]] = argument
    move_body(consumer.body, block, outer)
    for old, new in zip(consumer.op.results, fused.results, strict=True):
        old.replace_all_uses_with(new)
    consumer.op.erase()
    return read_generic(fused)


def _index(through: Any, axis: int) -> mlir.Value:
    """The producer's index ``axis`` inside the consumer, which reads it through the map ``through``."""
    return mlir.emit_affine(through.results[axis])
