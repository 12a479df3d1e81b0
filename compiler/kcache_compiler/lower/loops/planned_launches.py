"""Partitions the structured operations of ``main`` into fusion groups and orders them, for CPUs and GPUs.

A *run* is a sequence of operations of one block in which only structured operations have side effects. Other
operations (allocations, views, sizes) move to its start, so that structured operations may be reordered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.combiners import scans
from kcache_compiler.lower.loops.elements import Code
from kcache_compiler.lower.loops.launch import captured_by, read_nest
from kcache_compiler.lower.loops.selections import Combining
from kcache_compiler.lower.sort_scatter.marker import is_marker
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.inline_math_functions import operation_cost
from kcache_compiler.schedule.choices import USUAL_GROUPS, GroupLimits
from kcache_compiler.schedule.groups import PHASE, Group, Subject, alone, partition, reduces_along
from kcache_compiler.schedule.loop_nest import Nest
from kcache_compiler.schedule.loops import Buffer, Fused, loops
from kcache_compiler.schedule.split_reductions import needs_chunks, split

_PURE = (
    "memref.alloc",
    "memref.get_global",
    "memref.subview",
    "memref.cast",
    "memref.collapse_shape",
    "memref.expand_shape",
    "memref.reinterpret_cast",
    "memref.transpose",
    "memref.dim",
    "builtin.unrealized_conversion_cast",
)


Combines: TypeAlias = Callable[[mlir.Op], dict[int, Combining]]
Arrange: TypeAlias = Callable[[Group, Sequence[Subject], Mapping[int, Buffer], int], Fused]


@dataclass
class Planned:
    """A planned launch: its loops, the code of its statements, its generics in order of execution."""

    fused: Fused
    codes: dict[int, Code]
    buffers: list[mlir.Value]
    generics: list[mlir.Op]
    #: Allocations that its loops keep in registers.
    spared: list[mlir.Op]
    #: For a contraction with its fill and consumers: each as a separate launch.
    parts: list[Planned] = field(default_factory=list["Planned"])
    #: The combiners of the totals of chunks, by buffer, if the loops are split.
    combiners: dict[int, Combining] = field(default_factory=dict[int, Combining])


def plan_launches(
    main: mlir.Op,
    shapes: Shapes,
    is_contraction: Callable[[mlir.Op], bool] = lambda _: False,
    vector_bytes: int = 16,
    launched: Collection[mlir.Op] = (),
    arrange: Arrange = loops,
    combines: Combines = lambda _: {},
    limits: GroupLimits = USUAL_GROUPS,
) -> list[Planned]:
    """The launches of ``main`` in order of execution; reorders its generics accordingly.

    ``launched`` operations already belong to a launch: nothing moves across them. ``arrange`` creates the
    loops of a group; ``combines`` returns the combiners of results that may be reduced in chunks.
    """
    arranged = _Arranged(arrange, vector_bytes)
    return [
        planned
        for run in _runs(main, launched)
        for planned in _plan(run, shapes, is_contraction, arranged, combines, limits)
    ]


def _runs(main: mlir.Op, launched: Collection[mlir.Op]) -> Iterator[list[mlir.Op]]:
    """The runs of generics, in program order; moves other operations to the start of their run."""
    blocks = list(dict.fromkeys(generic.operation.block for generic in mlir.named(main, "linalg.generic")))
    for block in blocks:
        run: list[mlir.Op] = []
        for op in mlir.operations(block):
            name = mlir.name_of(op)
            if name == "linalg.generic" and op not in launched:
                run.append(op)
            elif run and (name in _PURE or name.startswith(("arith.", "math."))):
                op.move_before(run[0])
            elif run:
                yield run
                run = []
        if run:
            yield run


def _plan(
    run: list[mlir.Op],
    shapes: Shapes,
    is_contraction: Callable[[mlir.Op], bool],
    arranged: _Arranged,
    combines: Combines,
    limits: GroupLimits,
) -> Iterator[Planned]:
    """Partition a run of operations into fusion groups; yields their planned launches in execution order.

    Reads the loop nest of each operation, partitions the nests, and moves the operations of ``run`` into the
    order of the launches. If a launch that reduces along rows cannot be split into chunks, partitions again
    without such reductions.
    """
    values: list[mlir.Value] = []
    numbers: dict[mlir.Value, int] = {}

    def number_of(buffer: mlir.Value) -> int:
        if buffer not in numbers:
            numbers[buffer] = len(values)
            values.append(buffer)
        return numbers[buffer]

    codes: dict[int, Code] = {}
    combined: dict[int, dict[int, Combining]] = {}
    subjects: list[Subject] = []
    for position, generic in enumerate(run):
        inner = mlir.walk(generic)
        mlir.require_scalars(inner[1:])
        nest, accessed = read_nest(generic, shapes, number_of, inner)
        codes[position] = Code(generic, accessed)
        captured = [
            value for value in captured_by(generic, accessed, inner[1:]) if mlir.is_memref(value.type)
        ]
        opaque = frozenset(number_of(value) for value in captured)
        operations = sum(map(operation_cost, inner))
        contraction, unfusible = is_contraction(generic), is_marker(generic)
        chunkable = not contraction and not unfusible and needs_chunks(nest)
        op_combiners = combines(generic) if chunkable else {}
        combined[position] = _totals(nest, codes[position], op_combiners) if op_combiners else {}
        chunked = bool(combined[position])
        scan = chunked and scans(generic, op_combiners)
        phase = mlir.string_of(generic.attributes[PHASE]) if PHASE in generic.attributes else ""
        subjects.append(Subject(nest, operations, opaque, contraction, unfusible, chunked, scan, phase))
    roots: dict[mlir.Value, int] = {}
    root_of = [roots.setdefault(memory.root_of(value), len(roots)) for value in values]
    caller_roots = frozenset(number for root, number in roots.items() if memory.is_argument(root))
    order: list[Planned] = []

    def plans(limits: GroupLimits) -> list[tuple[_Local, Planned]]:
        groups: list[tuple[_Local, Planned]] = []
        for group in partition(subjects, root_of, limits, caller_roots):
            local = _Local(group, subjects, codes, values)
            planned = _planned(local.group, local, shapes, arranged)
            if any(subject.chunked for subject in local.subjects):
                _split(planned, local.subjects, {local.places[n]: combined[n] for n in local.places})
            groups.append((local, planned))
        return groups

    planned_groups = plans(limits)
    if any(
        reduces_along(local.group, local.subjects) and planned.fused.split is None
        for local, planned in planned_groups
    ):
        planned_groups = plans(replace(limits, shares_rows=False))
    for local, planned in planned_groups:
        if local.group.contraction:
            singles = [alone(member.number, local.subjects[member.number]) for member in local.group.members]
            planned.parts = [_planned(group, local, shapes, arranged) for group in singles]
        order.append(planned)
    _put_in_order([generic for planned in order for generic in planned.generics], run[-1])
    yield from order


def _put_in_order(generics: list[mlir.Op], last: mlir.Op) -> None:
    """Move operations of a block into this order, around ``last``, which is one of them."""
    for generic in generics:
        if generic != last:
            generic.move_before(last)
    for generic in generics[generics.index(last) + 1 :]:
        generic.move_after(last)
        last = generic


def _totals(nest: Nest, code: Code, combiners: Mapping[int, Combining]) -> dict[int, Combining]:
    """The combiners by access, if all results that are invariant in the reduced axes have one."""
    totals: dict[int, Combining] = {}
    for place, (access, number) in enumerate(zip(nest.accesses, code.numbers, strict=True)):
        moves = [access.strides[p] != 0 for p, axis in enumerate(nest.axes) if not axis.parallel]
        if not access.written or all(moves):
            continue
        if any(moves) or number - code.inputs not in combiners:
            return {}
        totals[place] = combiners[number - code.inputs]
    return totals


def _split(
    planned: Planned, subjects: Sequence[Subject], combined: Mapping[int, Mapping[int, Combining]]
) -> None:
    """Split the loops of a long reduction or scan into chunks, if that is legal."""
    statements = planned.fused.statements
    fused = planned.fused
    common, private = None, frozenset[int]()
    if len(fused.segments) > 1:
        common, private = fused.shared, fused.unstored | {*dict(fused.rows)}
    nests = [statement.nest for statement in statements]
    totals = {place: tuple(combined.get(statement.number, ())) for place, statement in enumerate(statements)}
    scan = any(subjects[statement.number].scan for statement in statements)
    numbers = {access.buffer for nest in nests for access in nest.accesses}
    widths = {
        number: memory.element_bytes(mlir.element_type(planned.buffers[number].type)) for number in numbers
    }
    accumulators = {place: buffers for place, buffers in totals.items() if buffers}
    chunked = split(nests, accumulators, widths, scan, common, private)
    if chunked is None:
        return
    planned.fused = replace(planned.fused, split=chunked)
    for statement in statements:
        for place, combiner in combined.get(statement.number, {}).items():
            planned.combiners[statement.nest.accesses[place].buffer] = combiner


class _Local:
    """A group whose nests and buffers are renumbered, in the order of the run.

    Groups that do the same to different buffers are thereby equal.
    """

    def __init__(
        self,
        group: Group,
        subjects: Sequence[Subject],
        codes: Mapping[int, Code],
        values: Sequence[mlir.Value],
    ) -> None:
        numbers = sorted(member.number for member in group.members)
        self.places = {number: place for place, number in enumerate(numbers)}
        used = sorted({access.buffer for number in numbers for access in subjects[number].nest.accesses})
        buffers = {number: place for place, number in enumerate(used)}
        self.values = [values[number] for number in used]
        self.codes = {self.places[number]: codes[number] for number in numbers}
        self.subjects = [_renumbered(subjects[number], buffers) for number in numbers]
        segments = [
            tuple(replace(member, number=self.places[member.number]) for member in segment)
            for segment in group.segments
        ]
        self.group = replace(group, segments=tuple(segments))


def _renumbered(subject: Subject, buffers: Mapping[int, int]) -> Subject:
    accesses = [access.of_buffer(buffers[access.buffer]) for access in subject.nest.accesses]
    return replace(subject, nest=replace(subject.nest, accesses=tuple(accesses)), opaque=frozenset())


class _Arranged:
    """``arrange``, memoized by group."""

    def __init__(self, arrange: Arrange, vector_bytes: int) -> None:
        self.arrange = arrange
        self.vector_bytes = vector_bytes
        self.known: dict[Hashable, Fused] = {}

    def of(self, group: Group, subjects: Sequence[Subject], buffers: Mapping[int, Buffer]) -> Fused:
        key = (group, tuple(subjects), tuple(buffers.items()))
        arranged = self.known.get(key)
        if arranged is None:
            arranged = self.known[key] = self.arrange(group, subjects, buffers, self.vector_bytes)
        return arranged


def _planned(group: Group, local: _Local, shapes: Shapes, arranged: _Arranged) -> Planned:
    """The launch of ``group``, which has all nests of ``local`` or some of them."""
    generics = [local.codes[member.number].generic for member in group.members]
    subjects, values = local.subjects, local.values
    used = {access.buffer for member in group.members for access in subjects[member.number].nest.accesses}
    # Contractions and unfusible operations always write their results to memory.
    keep = group.contraction or subjects[group.members[0].number].unfusible
    buffers = {number: _buffer(values[number], [] if keep else generics, shapes) for number in sorted(used)}
    fused = arranged.of(group, subjects, buffers)
    dropped = {*fused.unstored, *dict(fused.rows), *dict(fused.instead)}
    spared = [mlir.defining(values[number]) for number in sorted(dropped)]
    codes = {member.number: local.codes[member.number] for member in group.members}
    return Planned(fused, codes, values, generics, [op for op in spared if op is not None])


def _buffer(value: mlir.Value, generics: list[mlir.Op], shapes: Shapes) -> Buffer:
    owner = mlir.defining(value)
    allocated = owner is not None and mlir.name_of(owner) == "memref.alloc"
    local = allocated and all(any(user == generic for generic in generics) for user, _ in mlir.uses(value))
    element = mlir.element_type(value.type)
    return Buffer(
        tuple(shapes.sizes(value)),
        memory.element_bytes(element),
        str(element),
        local,
        whole=owner is None or allocated,
    )
