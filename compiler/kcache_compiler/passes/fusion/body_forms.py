"""The forms of structured operations: what their bodies compute, independent of their operands.

Operations of equal form are analyzed once. Whether one form fuses into another, and the form of the result,
is decided for the first such pair; long programs mostly repeat operations.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.inline_math_functions import operation_cost
from kcache_compiler.schedule.choices import FuseLimits

#: Operations cheap enough to be computed again for each read.
FREE = ("linalg.index", "linalg.yield", "arith.constant", "arith.index_cast")


@dataclass(frozen=True, eq=False)
class Form:
    """A ``linalg.generic`` without its operands; ``names`` are those of the operations of its body and of
    what is inside of them, ``length`` how many its body has, ``expanded`` the same with those of functions
    that it calls. It ``makes`` one tensor, of which each step makes one element, from its inputs only.
    """

    inputs: int
    maps: tuple[mlir.AffineMap, ...]
    parallel: bool
    names: list[str]
    length: int
    expanded: int
    makes: bool


@dataclass(frozen=True)
class FusionResult:
    """The result of fusing a producer of one form into a consumer of another.

    ``may``: fusion is possible. ``always``: it pays even if other operations read the producer. ``form``: the
    form of the fused operation; None if it depends on more than the two forms, as with ``linalg.index``.
    """

    may: bool
    always: bool = False
    form: Form | None = None


class Forms:
    """The forms of a program; equal ones are one where it is ``long``."""

    def __init__(self, limits: FuseLimits, long: bool) -> None:
        self._limits = limits
        self._long = long
        self._read: dict[Hashable, Form] = {}
        self._results: dict[tuple[Form, int, Form], FusionResult] = {}

    def read(self, op: mlir.Op) -> Form:
        """The form of an operation as it stands; one of its own where its body reads from another that may
        be fused, whose values come and go.
        """
        if not self._long:
            return _form_of(op)
        text = mlir.local_text(op)
        values: list[mlir.Value] = []
        if mlir.unknown_values(text) != len(op.operands):
            values = mlir.outside_values(op)
        owners = [owner for value in values if (owner := mlir.defining(value)) is not None]
        if any(mlir.name_of(owner) == "linalg.generic" for owner in owners):
            return _form_of(op)
        key = (text, tuple(values))
        form = self._read.get(key)
        if form is None:
            form = self._read[key] = _form_of(op)
        return form

    def fuse(self, consumer: Form, number: int, producer: Form) -> FusionResult:
        """Return the result of fusing ``producer`` into ``consumer`` as its operand ``number``."""
        key = (consumer, number, producer)
        result = self._results.get(key)
        if result is None:
            result = self._results[key] = self._fuse(*key)
        return result

    def _fuse(self, consumer: Form, number: int, producer: Form) -> FusionResult:
        """Compute the result of ``fuse``: checks limits, index maps and what the producer's body contains."""
        limits, through = self._limits, consumer.maps[number]
        if not producer.makes or len(consumer.maps) + producer.inputs > limits.operands:
            return FusionResult(False)
        if len(producer.names) + consumer.length > limits.body:
            return FusionResult(False)
        maps = fused_maps(consumer, number, producer)
        if not _has_every_loop(maps):
            return FusionResult(False)
        expanded = producer.expanded + consumer.expanded
        if "func.call" in producer.names and expanded > limits.expanded:
            return FusionResult(False)
        always = consumer.parallel and all(name in FREE for name in producer.names)
        if not always and not mlir.is_permutation(through):
            return FusionResult(False)
        if "linalg.index" in producer.names and not mlir.is_identity(through):
            return FusionResult(True, always)
        form = replace(
            consumer,
            inputs=consumer.inputs - 1 + producer.inputs,
            maps=tuple(maps),
            names=[*producer.names[:-1], *consumer.names],
            length=producer.length - 1 + consumer.length,
            expanded=expanded - 1,
        )
        return FusionResult(True, always, form)


def _form_of(op: mlir.Op) -> Form:
    inputs = mlir.input_count(op)
    maps = tuple(mlir.indexing_maps(op))
    parallel = all("parallel" in kind for kind in mlir.iterator_types(op))
    body = mlir.block_of(op)
    statements = mlir.operations(body)
    makes = (
        parallel
        and len(op.operands) == inputs + 1
        and mlir.is_identity(maps[-1])
        and not list(body.arguments[-1].uses)
        and len(op.results) == 1
        and mlir.is_tensor(op.results[0].type)
    )
    names = [mlir.name_of(inner) for inner in mlir.walk(op)[1:]]
    return Form(inputs, maps, parallel, names, len(statements), sum(map(operation_cost, statements)), makes)


def fused_maps(consumer: Form, number: int, producer: Form) -> list[mlir.AffineMap]:
    """The maps of ``consumer`` with operand ``number`` computed in place: of what it keeps, of what
    ``producer`` reads, of what it makes.
    """
    kept = [consumer.maps[position] for position in range(consumer.inputs) if position != number]
    through = consumer.maps[number]
    taken: Iterable[mlir.AffineMap] = producer.maps[:-1]
    if not mlir.is_identity(through):
        taken = [mlir.compose(entry, through) for entry in taken]
    return [*kept, *taken, *consumer.maps[consumer.inputs :]]


def _has_every_loop(maps: list[mlir.AffineMap]) -> bool:
    """Every loop stands alone in some map, so that its extent can be read off an operand.

    It does not when a broadcast or a reversal is all that a reduction reads.
    """
    plain = {mlir.plain_dim(result) for entry in maps for result in entry.results}
    return set(range(maps[0].n_dims)) <= plain


@dataclass(frozen=True)
class FusibleOp:
    """A ``linalg.generic`` with the values that it reads, its destinations, and its form."""

    op: mlir.Op
    inputs: tuple[mlir.Value, ...]
    outputs: tuple[mlir.Value, ...]
    form: Form
