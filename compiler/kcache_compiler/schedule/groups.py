"""Partitions loop nests into launches (fusion groups). Plain values, no IR.

A group has *shared* axes as its outermost loops, and inside them a sequence of *segments*, each with loops
of its own, whose innermost body holds the segment's *members* in order. Two nests share axes if iteration
``i`` of one accesses, among the elements that the other writes, only those that iteration ``i`` of the other
accesses; they share a segment if that holds for all axes and single elements. So every element is computed
once, in the order of the program, and no value changes.

A value that one member writes and a later one reads stays in a register if the segment or the shared
iteration is the same; a buffer without other users loses its shared axes, or is not stored at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kcache_compiler.schedule.choices import USUAL_GROUPS, GroupLimits
from kcache_compiler.schedule.loop_nest import Access, Nest
from kcache_compiler.shapes.formula import product, proves

#: The attribute of a structured operation that names its phase: operations of different phases never fuse.
PHASE = "kcache.phase"
#: How many of the latest groups a nest may join.
MAX_OFFERS = 12
#: How many earlier groups are searched for one that accesses the same buffers of the caller, or that a
#: scalar can be placed before.
MAX_SEARCHED = 1024
#: If a nest that would use several threads loses parallelism in its group, ``MANY_GIVEN_UP`` independent
#: iterations or more, the group must share ``MIN_SHARED`` iterations, so that several threads have work.
MIN_SHARED, MANY_GIVEN_UP = 8, 4096


@dataclass(frozen=True)
class Subject:
    """A nest to assign to a group. ``operations``: their number in its body; ``opaque``: buffers accessed at
    unknown indices.

    A ``contraction`` shares a group with nothing but the initialization of its result and its elementwise
    consumers. What is ``unfusible`` has its own group. The loops of a ``chunked`` reduction or scan are
    divided among threads in chunks, as it has too few independent iterations: it shares loops with nests of
    the same loops, and nothing comes before or after them in its group. But a chunked reduction may also
    reduce along the shared axes of a group, whose chunks then consist of shared iterations. ``scan``: what
    is chunked is a scan. Nests of different phases never share a group.
    """

    nest: Nest
    operations: int = 1
    opaque: frozenset[int] = frozenset()
    contraction: bool = False
    unfusible: bool = False
    chunked: bool = False
    scan: bool = False
    phase: str = ""


@dataclass(frozen=True)
class Member:
    """Nest ``number`` in a segment; its dimensions that are the shared axes, then those of the segment."""

    number: int
    shared: tuple[int, ...]
    inner: tuple[int, ...]

    @property
    def dims(self) -> tuple[int, ...]:
        return self.shared + self.inner


@dataclass(frozen=True)
class Group:
    """Members by segment, in execution order; all have equally many shared dimensions."""

    segments: tuple[tuple[Member, ...], ...]
    contraction: bool = False

    @property
    def members(self) -> list[Member]:
        return [member for segment in self.segments for member in segment]

    @property
    def shared(self) -> int:
        return len(self.segments[0][0].shared)


@dataclass(frozen=True)
class _Touched:
    """The roots that a nest writes, that it reads, and all that it may access; the buffers that it accesses
    at known places.
    """

    wrote: frozenset[int]
    read: frozenset[int]
    reached: frozenset[int]
    buffers: frozenset[int]


@dataclass
class Partition:
    """The groups of a run of nests while they are found."""

    subjects: Sequence[Subject]
    #: The allocation or argument behind each buffer: buffers that may overlap have one root.
    roots: Sequence[int]
    limits: GroupLimits = USUAL_GROUPS
    #: Roots of the buffers of the caller, which outlive the launch.
    caller_roots: frozenset[int] = frozenset()
    groups: list[Group] = field(default_factory=list[Group])
    _touched: dict[int, _Touched] = field(default_factory=dict[int, "_Touched"])

    def add(self, number: int, initializers: Sequence[int] = ()) -> None:
        """Put nest ``number`` into the latest group that takes it.

        ``initializers``: nests that write the initial values of its results; they come right before it.
        """
        if self.subjects[number].unfusible:
            self.groups += [alone(single, self.subjects[single]) for single in (*initializers, number)]
            return
        for position in range(len(self.groups) - 1, max(-1, len(self.groups) - 1 - MAX_OFFERS), -1):
            members = self.groups[position].members
            if any(
                self.conflicts(member.number, initializer)
                for member in members
                for initializer in initializers
            ):
                break
            joined = self._try_join(self.groups[position], number)
            if joined is not None and self._initializes_before_chunks(joined, number):
                before = [alone(single, self.subjects[single]) for single in initializers]
                self.groups[position : position + 1] = [*before, joined]
                return
            initialized = None if joined is None else self._with_initializers(joined, number, initializers)
            if initialized is not None:
                self.groups[position] = initialized
                return
            if any(self.conflicts(member.number, number) for member in members):
                break
        else:
            if not initializers and self._join_earlier_group(number):
                return
        own = alone(number, self.subjects[number])
        initialized = (
            None
            if initializers and self._has_chunked(own)
            else self._with_initializers(own, number, initializers)
        )
        if initialized is None:
            self.groups += [alone(initializer, self.subjects[initializer]) for initializer in initializers]
        self.groups.append(initialized or own)

    def _join_earlier_group(self, number: int) -> bool:
        """Put a nest that conflicts with none of the latest groups into an earlier group, or before one.

        Returns whether it was placed.

        Programs that update a state list results of one kind after another, such as all first moments and
        then all weights of an optimizer: a nest that writes only results joins a group that reads or writes
        the same memory, as its results live on anyway. A scalar comes before all groups that do not conflict
        with it: after them, it would prevent nests that read it from joining one of them.
        """
        subject = self.subjects[number]
        scalar = not subject.nest.axes
        if subject.opaque or subject.contraction or subject.chunked:
            return False
        if not scalar and not self._touches(number).wrote <= self.caller_roots:
            return False
        rows = frozenset(self.roots[access.buffer] for access in subject.nest.accesses if any(access.strides))
        offers = MAX_OFFERS
        count = first = len(self.groups)
        for position in range(count - 1, max(-1, count - 1 - MAX_SEARCHED), -1):
            group = self.groups[position]
            touched = [self._touches(member.number) for member in group.members]
            if (
                rows
                and count - position > MAX_OFFERS
                and any(rows & (one.read | one.wrote) for one in touched)
            ):
                joined = None if group.contraction else self._try_join(group, number)
                if joined is not None and not self._has_chunked(joined):
                    self.groups[position] = joined
                    return True
                offers -= 1
            if offers == 0 or any(self.conflicts(member.number, number) for member in group.members):
                break
            first = position
        if scalar:
            self.groups.insert(first, alone(number, subject))
        return scalar

    def _touches(self, number: int) -> _Touched:
        """What a nest touches; read once for each nest, since it is compared with many."""
        touched = self._touched.get(number)
        if touched is None:
            subject, roots = self.subjects[number], self.roots
            accesses = subject.nest.accesses
            wrote = frozenset(roots[access.buffer] for access in accesses if access.written)
            read = frozenset(roots[access.buffer] for access in accesses if access.reads)
            buffers = frozenset(access.buffer for access in accesses)
            reached = frozenset(roots[buffer] for buffer in buffers | subject.opaque)
            touched = self._touched[number] = _Touched(wrote, read, reached, buffers)
        return touched

    def _has_chunked(self, group: Group) -> bool:
        return any(self.subjects[member.number].chunked for member in group.members)

    def _initializes_before_chunks(self, group: Group, number: int) -> bool:
        """Whether what initializes the results of nest ``number`` must be in groups before this one."""
        along = reduces_along(group, self.subjects)
        return self.subjects[number].chunked if along else self._has_chunked(group)

    def _with_initializers(self, group: Group, number: int, initializers: Sequence[int]) -> Group | None:
        """The group with ``initializers`` in their own segments right before that of nest ``number``."""
        segments = list(group.segments)
        position = next(k for k, segment in enumerate(segments) if any(m.number == number for m in segment))
        member = next(member for member in segments[position] if member.number == number)
        for initializer in initializers:
            writes, _ = self._related(number, initializer)
            shared: list[int] = []
            for dim in member.shared:
                along = {_aligned_dim(a, b, dim) for a, b in writes}
                if len(along) != 1 or (partner := along.pop()) is None:
                    return None
                shared.append(partner)
            inner = [dim for dim in range(len(self.subjects[initializer].nest.axes)) if dim not in shared]
            segments.insert(position, (Member(initializer, tuple(shared), tuple(inner)),))
        initialized = replace(group, segments=tuple(segments))
        return initialized if not initializers or group.contraction or self._pays(initialized) else None

    def conflicts(self, first: int, second: int) -> bool:
        """One of two nests writes what the other touches."""
        a, b = self._touches(first), self._touches(second)
        return not (a.wrote.isdisjoint(b.reached) and b.wrote.isdisjoint(a.reached))

    def _related(
        self, first: int, second: int
    ) -> tuple[list[tuple[Access, Access]], list[tuple[Access, Access]]]:
        """Pairs of accesses of two nests to one buffer: where one writes, and where both read."""
        writes: list[tuple[Access, Access]] = []
        reads: list[tuple[Access, Access]] = []
        for a in self.subjects[first].nest.accesses:
            for b in self.subjects[second].nest.accesses:
                if a.buffer == b.buffer:
                    (writes if a.written or b.written else reads).append((a, b))
        return writes, reads

    def conflicts_indirectly(self, first: int, second: int) -> bool:
        """Whether they conflict by aliases or opaque buffers, not only by accesses to one buffer."""
        if not self.conflicts(first, second):
            return False
        a, b = self.subjects[first], self.subjects[second]
        for source, other in ((a, b), (b, a)):
            for access in source.nest.accesses:
                root = self.roots[access.buffer]
                if access.written and root in {self.roots[buffer] for buffer in other.opaque}:
                    return True
                for peer in other.nest.accesses:
                    if access.written and self.roots[peer.buffer] == root and peer.buffer != access.buffer:
                        return True
        return False

    def _try_join(self, group: Group, number: int) -> Group | None:
        """The group with nest ``number`` in it; None if fusing them is not valid or does not pay.

        ``along``: members reduce along the shared axes, in chunks of shared iterations. Totals are the
        results of such reductions, which are complete only after the last chunk.
        """
        subject = self.subjects[number]
        first = self.subjects[group.members[0].number]
        if subject.contraction or first.unfusible or subject.phase != first.phase:
            return None
        buffers = self._touches(number).buffers
        if all(buffers.isdisjoint(self._touches(member.number).buffers) for member in group.members):
            return None  # loops are shared by accesses to one buffer
        if group.contraction:
            return self._append_epilogue(group, number)
        if not self._fits(group, subject) or any(
            self.conflicts_indirectly(m.number, number) for m in group.members
        ):
            return None
        along = reduces_along(group, self.subjects)
        if not along and (subject.chunked or self._has_chunked(group)):
            return self._in_chunks(group, number) or self._along_rows(group, number)
        if along and (subject.scan or self._uses_totals(group, number)):
            return None
        pairs = self._shared_pairs(group, number, subject.chunked)
        if not pairs or (along and len(pairs) < group.shared):
            return None
        joined = self._with_segment(group, number, pairs)
        return joined if joined is not None and self._pays(joined) else None

    def _with_segment(self, group: Group, number: int, pairs: list[tuple[int, int]]) -> Group | None:
        """The group, narrowed to the shared axes of ``pairs``, with nest ``number`` in a segment of it."""
        merged, own, segments = self._merged(group, number, pairs)
        if merged is not None:
            return Group(merged)
        if not any(self.conflicts(member.number, number) for member in group.members):
            return None  # they only read the same: nothing is gained in their own loops
        return Group((*segments, (own,)))

    def _merged(
        self, group: Group, number: int, pairs: list[tuple[int, int]]
    ) -> tuple[tuple[tuple[Member, ...], ...] | None, Member, list[tuple[Member, ...]]]:
        """The segments with nest ``number`` in the loops of one; the nest, the segments before that."""
        shared = tuple(dim for _, dim in pairs)
        inner = tuple(dim for dim in range(len(self.subjects[number].nest.axes)) if dim not in shared)
        segments = [
            tuple(_narrowed(member, [position for position, _ in pairs]) for member in segment)
            for segment in group.segments
        ]
        return self._merge(segments, number, shared, inner), Member(number, shared, inner), segments

    def _in_chunks(self, group: Group, number: int) -> Group | None:
        """Loops over all axes, which chunked reductions and what has the same loops go through together."""
        merged, _, _ = self._merged(group, number, self._shared_pairs(group, number))
        scans = any(self.subjects[op].scan for op in (number, *(m.number for m in group.members)))
        if (
            merged is None
            or len(merged) > 1
            or (scans and self.subjects[number].chunked and self._has_chunked(group))
        ):
            return None
        return Group(merged)

    def _along_rows(self, group: Group, number: int) -> Group | None:
        """The group in which ``number`` may reduce along the shared axes."""
        subject = self.subjects[number]
        if not self.limits.shares_rows or subject.scan or self._has_chunked(group):
            return None
        pairs = self._shared_pairs(group, number, reduced=True)
        if all(subject.nest.axes[dim].parallel for _, dim in pairs):
            return None
        joined = self._with_segment(group, number, pairs)
        if joined is None or len(joined.segments) < 2 or not any(member.inner for member in joined.members):
            return None
        return joined if self._pays(joined) else None

    def _uses_totals(self, group: Group, number: int) -> bool:
        """Whether nest ``number`` accesses totals of a chunked reduction, known only after all chunks."""
        chunked = [member.number for member in group.members if self.subjects[member.number].chunked]
        totals = [
            access.buffer
            for source in chunked
            for access in self.subjects[source].nest.accesses
            if access.written and access.reads
        ]
        touched = {self.roots[access.buffer] for access in self.subjects[number].nest.accesses}
        return any(self.roots[buffer] in touched for buffer in totals)

    def _fits(self, group: Group, subject: Subject) -> bool:
        """Whether the group with ``subject`` is within the limits on operations and buffers."""
        taken = [self.subjects[member.number] for member in group.members]
        operations = subject.operations + sum(member.operations for member in taken)
        buffers = {access.buffer for member in (*taken, subject) for access in member.nest.accesses}
        return operations <= self.limits.operations and len(buffers) <= self.limits.buffers

    def _shared_pairs(self, group: Group, number: int, reduced: bool = False) -> list[tuple[int, int]]:
        """The shared axes that remain, each with the dimension of nest ``number`` that iterates over it.

        ``reduced``: it may be one that the nest reduces.
        """
        results: list[tuple[int, int]] = []
        for position in range(group.shared):
            dim = self._matching_dim(group, position, number, reduced)
            if dim is not None and dim not in {taken for _, taken in results}:
                results.append((position, dim))
        return results

    def _matching_dim(self, group: Group, position: int, number: int, reduced: bool) -> int | None:
        """The dimension of nest ``number`` that iterates as the shared axis at ``position`` does.

        It accesses each common buffer through the same axis, and is equally long; None if there is none, or
        if accesses disagree. ``reduced``: it may be a dimension that the nest reduces.
        """
        from_writes: set[int | None] = set()
        from_reads: set[int | None] = set()
        nest = self.subjects[number].nest
        for member in group.members:
            dim = member.shared[position]
            writes, reads = self._related(member.number, number)
            from_writes |= {_aligned_dim(a, b, dim) for a, b in writes}
            from_reads |= {_aligned_dim(a, b, dim) for a, b in reads}
        result = from_writes or (from_reads - {None})
        if len(result) != 1 or (partner := result.pop()) is None:
            return None
        first = group.members[0]
        size = self.subjects[first.number].nest.axes[first.shared[position]].size
        axis = nest.axes[partner]
        return partner if (axis.parallel or reduced) and proves(axis.size, size, equal=True) else None

    def _merge(
        self, segments: list[tuple[Member, ...]], number: int, shared: tuple[int, ...], inner: tuple[int, ...]
    ) -> tuple[tuple[Member, ...], ...] | None:
        """The segments with nest ``number`` inside the loops of one of them."""
        for position in range(len(segments) - 1, -1, -1):
            segment = segments[position]
            order = self._inner_order(segment, number, inner)
            if order is not None:
                member = Member(number, shared, order)
                if all(self._same_elements(other, member) for other in segment):
                    return (*segments[:position], (*segment, member), *segments[position + 1 :])
            if any(self.conflicts(other.number, number) for other in segment):
                return None
        return None

    def _inner_order(
        self, segment: tuple[Member, ...], number: int, inner: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """Dimensions of nest ``number`` in the order of the segment's own axes."""
        if len(segment[0].inner) != len(inner):
            return None
        nest = self.subjects[number].nest
        order: list[int] = []
        for position in range(len(inner)):
            hints: set[int | None] = set()
            for member in segment:
                for pairs in self._related(member.number, number):
                    hints |= {_aligned_dim(a, b, member.inner[position]) for a, b in pairs}
            known = hints - {None}
            if len(known) != 1:
                return None
            dim = known.pop()
            first = segment[0]
            size = self.subjects[first.number].nest.axes[first.inner[position]].size
            if dim is None or dim not in inner or not proves(nest.axes[dim].size, size, equal=True):
                return None
            order.append(dim)
        reduced = [dim for dim in order if not nest.axes[dim].parallel]
        in_order = reduced == sorted(reduced)  # sums keep the order of the program
        return tuple(order) if len(set(order)) == len(inner) and in_order else None

    def _same_elements(self, first: Member, second: Member) -> bool:
        """What one writes and the other touches, both touch in the same iteration only."""
        writes, _ = self._related(first.number, second.number)
        axes = self.subjects[first.number].nest.axes
        partner = dict(zip(first.dims, second.dims, strict=True))
        for a, b in writes:
            mapped = tuple(None if dim is None else partner[dim] for dim in a.dims)
            if mapped != b.dims or a.offset != b.offset:
                return False
            if any(a.strides[dim] != b.strides[other] for dim, other in partner.items()):
                return False
            if any(dim not in a.dims and axes[dim].size != 1 for dim in first.dims):
                return False
        return True

    def _pays(self, group: Group) -> bool:
        """Whether innermost loops stay contiguous and enough iterations are left for all threads."""
        if not self._keeps_threads(group):
            return False
        if len(group.segments) == 1:
            return True
        for member in group.members:
            subject = self.subjects[member.number]
            for access in subject.nest.accesses:
                walks = [access.strides[dim] != 0 for dim in member.inner]
                if any(walks) and any(
                    access.strides[dim] == 1 and subject.nest.axes[dim].size != 1 for dim in member.shared
                ):
                    return False
        return True

    def _keeps_threads(self, group: Group) -> bool:
        """Whether each nest keeps enough independent iterations for several threads."""
        first = group.members[0]
        axes = self.subjects[first.number].nest.axes
        iterations = product([axes[dim].size for dim in first.shared])
        if not isinstance(iterations, int) or iterations >= MIN_SHARED:
            return True
        many = max(MANY_GIVEN_UP, self.limits.serial // max(1, iterations))
        for member in group.members:
            axes = self.subjects[member.number].nest.axes
            lost = product([axes[dim].size for dim in member.inner if axes[dim].parallel])
            if isinstance(lost, int) and lost >= many:
                return False
        return True

    def _append_epilogue(self, group: Group, number: int) -> Group | None:
        """The group of a contraction with nest ``number`` as the end of its epilogue; None if it is none.

        An epilogue is elementwise over all axes of the contraction's result.
        """
        subject = self.subjects[number]
        writes = any(self._related(member.number, number)[0] for member in group.members)
        parallel = all(axis.parallel for axis in subject.nest.axes)
        if (
            not parallel
            or not writes
            or any(self.conflicts_indirectly(m.number, number) for m in group.members)
        ):
            return None
        pairs = self._shared_pairs(group, number)
        if len(pairs) != group.shared or len(pairs) != len(subject.nest.axes):
            return None
        return replace(group, segments=(*group.segments, (Member(number, tuple(d for _, d in pairs), ()),)))


def reduces_along(group: Group, subjects: Sequence[Subject]) -> bool:
    """Whether some member reduces along the shared axes of a group."""
    return any(
        not subjects[member.number].nest.axes[dim].parallel
        for member in group.members
        for dim in member.shared
    )


def _narrowed(member: Member, kept: list[int]) -> Member:
    """The member when only the shared axes ``kept`` remain: the others are loops of its own, outermost."""
    shared = tuple(member.shared[position] for position in kept)
    dropped = tuple(dim for position, dim in enumerate(member.shared) if position not in kept)
    return Member(member.number, shared, dropped + member.inner)


def _aligned_dim(a: Access, b: Access, dim: int) -> int | None:
    """The dimension of ``b`` that iterates over the same axis of one buffer as ``dim`` of ``a``."""
    if len(a.dims) != len(b.dims) or dim not in a.dims:
        return None
    return b.dims[a.dims.index(dim)]


def alone(number: int, subject: Subject) -> Group:
    """The group of one nest."""
    axes = subject.nest.axes
    absent = _absent(subject)
    parallel = tuple(dim for dim, axis in enumerate(axes) if axis.parallel and dim not in absent)
    rest = tuple(dim for dim, axis in enumerate(axes) if not axis.parallel or dim in absent)
    return Group(((Member(number, parallel, rest),),), subject.contraction)


def _absent(subject: Subject) -> set[int]:
    """The parallel axes of size 1 of a contraction that its result does not have."""
    if not subject.contraction:
        return set()
    written = [access for access in subject.nest.accesses if access.written]
    return {
        dim
        for dim, axis in enumerate(subject.nest.axes)
        if axis.parallel and axis.size == 1 and all(dim not in access.dims for access in written)
    }


def apart(
    subjects: Sequence[Subject],
    roots: Sequence[int],
    limits: GroupLimits = USUAL_GROUPS,
    caller_roots: frozenset[int] = frozenset(),
) -> list[Group]:
    """Every nest in its own group, in program order."""
    del roots, limits, caller_roots
    return [alone(number, subject) for number, subject in enumerate(subjects)]


def partition(
    subjects: Sequence[Subject],
    roots: Sequence[int],
    limits: GroupLimits = USUAL_GROUPS,
    caller_roots: frozenset[int] = frozenset(),
) -> list[Group]:
    """Groups in execution order; ``roots``: the root of each buffer, ``caller_roots``: those of the caller.

    A nest that reads nothing waits for the first that touches what it writes, and shares iterations with it
    unless that one reads other elements through a view.
    """
    if not limits.joins:
        return apart(subjects, roots)
    result = Partition(subjects, roots, limits, caller_roots)
    waiting: list[int] = []
    for number, subject in enumerate(subjects):
        if not subject.opaque and all(not access.reads for access in subject.nest.accesses):
            due = [other for other in waiting if result.conflicts(other, number)]
            waiting = [other for other in waiting if other not in due] + [number]
            for other in due:
                result.add(other)
            continue
        due = [other for other in waiting if result.conflicts(other, number)]
        waiting = [other for other in waiting if other not in due]
        before = [other for other in due if result.conflicts_indirectly(other, number)]
        for other in before:
            result.add(other)
        result.add(number, [other for other in due if other not in before])
    for other in waiting:
        result.add(other)
    return result.groups
