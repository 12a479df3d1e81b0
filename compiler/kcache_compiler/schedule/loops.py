"""The loops of a group: the storage of its buffers, the order of its axes, and which axes are merged.

Plain values, as the groups are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kcache_compiler.schedule.groups import Group, Subject
from kcache_compiler.schedule.loop_nest import SLICE_WORK, Access, Axis, Check, Nest, order_axes
from kcache_compiler.schedule.split_reductions import CHUNK, Split
from kcache_compiler.shapes.formula import Formula, add, apply, mul, product, proves

#: Bytes of rows that one launch keeps on the stack, of the 64 KiB that a kernel may use.
STACK = 32768
#: Iterations of a loop over a single row above which the loop over the rows is kept: sums of longer rows are
#: computed in blocks, in nested loops.
LONG_ROW = 8192


@dataclass(frozen=True)
class Buffer:
    """What placing asks of a buffer: axes, bytes of an element, its type as text.

    ``local``: allocated in the function, and touched by nests of the group only, never through a view.
    ``whole``: a buffer of its own, not a view.
    """

    sizes: tuple[Formula, ...]
    width: int
    element: str = "f32"
    local: bool = False
    whole: bool = True


@dataclass(frozen=True)
class Statement:
    """Nest ``number`` inside the loops of its segment: its axes are theirs."""

    number: int
    nest: Nest


@dataclass(frozen=True)
class Turn:
    """Square tiles over two axes: ``along``, the last one, and ``across``, along which ``accesses`` run."""

    across: int
    along: int
    size: int
    accesses: tuple[Access, ...]
    #: Elements may be computed twice: nothing reads what is written.
    repeats: bool = False


@dataclass(frozen=True)
class Fused:
    """The loops of one launch. All nests begin with the ``shared`` axes; those of a segment are alike.

    Buffers in ``unstored`` live in registers, those in ``rows`` on the stack with this many bytes, those in
    ``instead`` in the place of another buffer.
    """

    segments: tuple[tuple[Statement, ...], ...]
    shared: int
    unstored: frozenset[int] = frozenset()
    rows: tuple[tuple[int, int], ...] = ()
    instead: tuple[tuple[int, int], ...] = ()
    turn: Turn | None = None
    #: Results that go to memory past the caches.
    streamed: frozenset[int] = frozenset()
    #: Elements of a vector that may be stored in part, which takes what is left of a row. 0: there is none.
    lanes: int = 0
    #: Elements of a vector where vectors have 32 bytes. 0: elsewhere.
    short_lanes: int = 0
    #: Chunks of an axis that is reduced, which threads share in the place of one of these loops.
    split: Split | None = None
    #: Rows that one pass over accumulators in memory takes in at most, and vectors that innermost loops take
    #: in one turn, 0 for what suits their bodies: choices.
    together: int = 4
    turns: int = 0
    #: It is always one slice, of all iterations.
    whole: bool = False

    @property
    def statements(self) -> list[Statement]:
        return [statement for segment in self.segments for statement in segment]

    @property
    def sliced(self) -> int | None:
        """The axis that is split over threads."""
        if self.split is not None:
            return None
        nests = [statement.nest for statement in self.statements]
        count = 1 if self.shared else len(nests[0].axes)
        if not self.shared and len(self.segments) > 1:
            return None
        return next((p for p in range(count) if all(nest.axes[p].parallel for nest in nests)), None)

    @property
    def is_row(self) -> bool:
        """Whether the axis that is split over threads is a single row, whose loop is kept."""
        return self.sliced is not None and self.extent == 1

    @property
    def cut(self) -> tuple[int | None, int | None]:
        """Axes that a call walks in part: over threads, over chunks."""
        return self.sliced, None if self.split is None else self.split.position

    @property
    def extent(self) -> Formula:
        if self.split is not None:
            return self.split.count
        return 1 if self.sliced is None else self.statements[0].nest.axes[self.sliced].size

    @property
    def grain(self) -> Formula:
        """The smallest slice worth a thread, in steps of the sliced axis."""
        if self.split is not None and not self.shared:
            return SLICE_WORK // CHUNK
        along, step = (self.sliced, 1) if self.split is None else (self.split.position, self.split.length)
        if along is None:
            return 1
        inner: Formula = 0
        for segment in self.segments:
            axes = segment[0].nest.axes
            inner = add(inner, product([axis.size for p, axis in enumerate(axes) if p != along]))
        return apply("ceildiv", SLICE_WORK, apply("max", 1, mul(step, inner)))

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(dict.fromkeys(check for statement in self.statements for check in statement.nest.checks))


def loops(
    group: Group, subjects: Sequence[Subject], buffers: Mapping[int, Buffer], vector_bytes: int = 16
) -> Fused:
    """The loops of a group without a contraction; ``buffers`` are those of its nests."""
    segments = [
        tuple(
            Statement(member.number, subjects[member.number].nest.with_axes(member.dims))
            for member in segment
        )
        for segment in group.segments
    ]
    fused = _placed(Fused(tuple(segments), group.shared), buffers)
    if len(fused.segments) == 1:
        fused = replace(fused, shared=0)
    fused = _merged(_ordered(_without_units(fused)))
    return replace(fused, turn=_turn(fused, buffers, vector_bytes))


def _placed(fused: Fused, buffers: Mapping[int, Buffer]) -> Fused:
    """Decide of every buffer that only this group uses where it lives."""
    uses: dict[int, list[tuple[int, Statement, Access]]] = {}
    for position, segment in enumerate(fused.segments):
        for statement in segment:
            for access in statement.nest.accesses:
                uses.setdefault(access.buffer, []).append((position, statement, access))
    unstored: set[int] = set()
    rows: dict[int, int] = {}
    instead: dict[int, int] = {}
    for buffer, result in uses.items():
        if not buffers[buffer].local or result[0][2].reads or not result[0][2].written:
            continue
        if _flows(result, fused.shared):
            unstored.add(buffer)
        elif (other := _heir(buffer, uses, buffers, set(instead.values()))) is not None:
            instead[buffer] = other
        elif len(fused.segments) > 1:
            size = _row(buffers[buffer], result, fused.shared)
            if size is not None and size + sum(rows.values()) <= STACK:
                rows[buffer] = size
    kept = replace(
        fused,
        unstored=frozenset(unstored),
        rows=tuple(sorted(rows.items())),
        instead=tuple(sorted(instead.items())),
    )
    return _contracted(kept, frozenset(rows)) if rows else kept


def _flows(result: list[tuple[int, Statement, Access]], shared: int) -> bool:
    """Every read finds the element in a register: all in one body, or outside of inner loops."""
    if len({position for position, _, _ in result}) == 1:
        return True
    first = result[0][2]
    key = (first.offset, first.strides[:shared])
    return all(
        not any(access.strides[shared:]) and (access.offset, access.strides[:shared]) == key
        for _, _, access in result
    )


def _heir(
    buffer: int,
    uses: dict[int, list[tuple[int, Statement, Access]]],
    buffers: Mapping[int, Buffer],
    taken: set[int],
) -> int | None:
    """A result that is written where the buffer is read last, element for element: it can hold both."""
    last = uses[buffer][-1]
    if last[2].written:
        return None
    mine = buffers[buffer]
    for access in last[1].nest.accesses:
        other = access.buffer
        theirs = buffers[other]
        free = other not in taken and len(uses[other]) == 1 and theirs.whole and not theirs.local
        if not free or not access.written or access.reads:
            continue
        alike = access.strides == last[2].strides and access.offset == last[2].offset
        full = None not in access.dims and all(axis.parallel for axis in last[1].nest.axes)
        same = mine.sizes == theirs.sizes and mine.element == theirs.element
        once = sum(read == last[1] for _, read, _ in uses[buffer]) == 1
        if alike and full and same and once:
            return other
    return None


def _row(buffer: Buffer, result: list[tuple[int, Statement, Access]], shared: int) -> int | None:
    """Bytes of one shared iteration's part of a buffer with leading shared axes; None when open."""
    leading: set[int] = set()
    for _, statement, access in result:
        sources = [axis.sources[0] for axis in statement.nest.axes[:shared]]
        positions = [access.dims.index(source) for source in sources if source in access.dims]
        if sorted(positions) != list(range(len(positions))):
            return None
        if any(access.strides[p] for p, source in enumerate(sources) if source not in access.dims):
            return None
        leading.add(len(positions))
    if len(leading) != 1:
        return None
    size = mul(buffer.width, product(list(buffer.sizes[leading.pop() :])))
    return size if isinstance(size, int) else None


def _contracted(fused: Fused, rows: frozenset[int]) -> Fused:
    def contract(nest: Nest) -> Nest:
        accesses = tuple(
            replace(access, strides=(0,) * fused.shared + access.strides[fused.shared :])
            if access.buffer in rows
            else access
            for access in nest.accesses
        )
        return replace(nest, accesses=accesses)

    return _each(fused, contract)


def _each(fused: Fused, change: Callable[[Nest], Nest]) -> Fused:
    segments = tuple(
        tuple(Statement(statement.number, change(statement.nest)) for statement in segment)
        for segment in fused.segments
    )
    return replace(fused, segments=segments)


def _without_units(fused: Fused) -> Fused:
    """Drop axes of size 1, but keep the loop over a single long row.

    Without it, LLVM may move what it computes between the loops over the row, such as the final steps of a
    reduction, into the next of them: the option ``-sink-insts-to-avoid-spills`` moves code into outermost
    loops.
    """
    first = fused.statements[0].nest
    kept_shared = [p for p in range(fused.shared) if first.axes[p].size != 1]
    if fused.shared and not kept_shared and _is_long_row(fused):
        kept_shared = [0]
    segments: list[tuple[Statement, ...]] = []
    for segment in fused.segments:
        axes = segment[0].nest.axes
        kept = kept_shared + [p for p in range(fused.shared, len(axes)) if axes[p].size != 1]
        segments.append(
            tuple(Statement(statement.number, statement.nest.with_axes(kept)) for statement in segment)
        )
    return replace(fused, segments=tuple(segments), shared=len(kept_shared))


def _is_long_row(fused: Fused) -> bool:
    """Whether there are several loops over a parallel row of more than ``LONG_ROW`` iterations."""
    if len(fused.segments) == 1 or not all(statement.nest.axes[0].parallel for statement in fused.statements):
        return False
    lengths = [
        product([axis.size for axis in segment[0].nest.axes[fused.shared :]]) for segment in fused.segments
    ]
    return any(isinstance(length, int) and length > LONG_ROW for length in lengths)


def _ordered(fused: Fused) -> Fused:
    shared = list(range(fused.shared))
    order = _best_order([statement.nest for statement in fused.statements], shared, fused.unstored)
    segments: list[tuple[Statement, ...]] = []
    for segment in fused.segments:
        nests = [statement.nest for statement in segment]
        inner = _best_order(nests, range(fused.shared, len(nests[0].axes)), fused.unstored)
        segments.append(
            tuple(
                Statement(statement.number, statement.nest.with_axes([*order, *inner]))
                for statement in segment
            )
        )
    return replace(fused, segments=tuple(segments))


def _best_order(nests: list[Nest], positions: Sequence[int], unstored: frozenset[int]) -> list[int]:
    """The order of the axes at ``positions`` that suits the memory accesses of all nests."""
    axes = tuple(
        Axis(nests[0].axes[p].size, all(nest.axes[p].parallel for nest in nests), (p,)) for p in positions
    )
    accesses = [
        access.with_strides(tuple([access.strides[p] for p in positions]))
        for nest in nests
        for access in nest.accesses
        if access.buffer not in unstored
    ]
    accesses.sort(key=lambda access: (not access.written, -sum(stride != 0 for stride in access.strides)))
    joint = order_axes(Nest(axes, tuple(accesses)))
    return [axis.sources[0] for axis in joint.axes]


def _merged(fused: Fused) -> Fused:
    """Make one axis of two neighbors which every access in memory walks as one."""
    position = 0
    while position + 1 < fused.shared:
        if all(_mergeable(statement.nest, position, fused.unstored) for statement in fused.statements):
            fused = _each(fused, partial(_merge, position=position))
            fused = replace(fused, shared=fused.shared - 1)
        else:
            position += 1
    segments: list[tuple[Statement, ...]] = []
    for segment in fused.segments:
        position = fused.shared
        while position + 1 < len(segment[0].nest.axes):
            if all(_mergeable(statement.nest, position, fused.unstored) for statement in segment):
                segment = tuple(
                    Statement(statement.number, _merge(statement.nest, position)) for statement in segment
                )
            else:
                position += 1
        segments.append(segment)
    return replace(fused, segments=tuple(segments))


def _mergeable(nest: Nest, position: int, unstored: frozenset[int]) -> bool:
    outer, inner = nest.axes[position], nest.axes[position + 1]
    if outer.parallel != inner.parallel or nest.fixed & {*outer.sources, *inner.sources}:
        return False
    return all(
        proves(access.strides[position], mul(inner.size, access.strides[position + 1]), equal=True)
        for access in nest.accesses
        if access.buffer not in unstored
    )


def _merge(nest: Nest, position: int) -> Nest:
    outer, inner = nest.axes[position], nest.axes[position + 1]
    merged = Axis(mul(outer.size, inner.size), outer.parallel, outer.sources + inner.sources)
    accesses = tuple(
        replace(access, strides=access.strides[:position] + access.strides[position + 1 :])
        for access in nest.accesses
    )
    axes = (*nest.axes[:position], merged, *nest.axes[position + 2 :])
    return replace(nest, axes=axes, accesses=accesses)


def _turn(fused: Fused, buffers: Mapping[int, Buffer], vector_bytes: int) -> Turn | None:
    """Tiles for an elementwise nest that reads along another axis than the one it writes along."""
    nests = [statement.nest for statement in fused.statements]
    axes = nests[0].axes
    if len(fused.segments) > 1 or len(axes) < 2 or not all(axis.parallel for n in nests for axis in n.axes):
        return None
    along = len(axes) - 1
    stored = [a for nest in nests for a in nest.accesses if a.buffer not in fused.unstored]
    written = {access.buffer for access in stored if access.written}
    if any(access.strides[along] != 1 for access in stored if access.written):
        return None
    results: dict[int, dict[Access, None]] = {}
    for access in stored:
        turns = access.strides[along] not in (0, 1) and not buffers[access.buffer].element.startswith(
            "complex"
        )
        across = next((p for p in range(along) if access.strides[p] == 1), None)
        if turns and across is not None and access.buffer not in written:
            results.setdefault(across, {})[access] = None
    if not results:
        return None
    across, accesses = max(results.items(), key=lambda entry: len(entry[1]))
    size = min(16, vector_bytes // max(buffers[access.buffer].width for access in accesses))
    known = [length for p in (across, along) if isinstance(length := axes[p].size, int)]
    long = all(length >= size for length in known)
    return Turn(across, along, size, tuple(accesses)) if size >= 4 and long else None
