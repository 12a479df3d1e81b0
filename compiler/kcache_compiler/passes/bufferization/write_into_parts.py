"""Values that are copied into a part of a larger buffer, as those of a concatenation, are computed there.

Bufferization computes an operand of a concatenation in its own buffer, which a later copy moves. Where
nothing can observe it, the operand's buffer is the part of the larger one, and there is no copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.shapes.recovery import RecoveredSizes

_SUBVIEW = "memref.subview"
#: First elements and numbers of elements by axis.
Box = tuple[list[int], list[int]]


@dataclass(frozen=True)
class _Access:
    """An access of a part of a buffer, or of all of it, by ``user``, which is ``op`` or within it."""

    op: mlir.Op
    user: mlir.Op
    value: mlir.Value
    box: Box | None

    @property
    def is_known(self) -> bool:
        return mlir.name_of(self.user) in ("linalg.generic", "memref.load")

    @property
    def writes(self) -> bool:
        if mlir.name_of(self.user) == "memref.load":
            return False
        return self.value in list(self.user.operands)[mlir.input_count(self.user) :]


def write_into_parts(module: mlir.Module, codes: RecoveredSizes) -> None:
    """Replace allocations by the parts of larger ones that they are copied to, and drop the copies.

    Not with dynamic sizes, where those of the module are of a sample: parts may overlap at others. Both
    buffers are allocated in the block of ``main`` with static sizes. Nothing else touches the part from the
    first access of the smaller one up to the copy, nothing writes it while that is still read, and nothing
    writes the smaller one while the part is still used.
    """
    if codes:
        return
    body = mlir.block_of(mlir.main_function(module))
    copies = [op for op in mlir.operations(body) if _is_copy(op) and _is_part(op.operands[1], body)]
    for copy in copies:
        source = copy.operands[0]
        # An earlier replacement can have made the larger buffer a part itself.
        is_part = _is_part(copy.operands[1], body)
        if is_part and _is_whole(source, body) and source != mlir.definition(copy.operands[1]).operands[0]:
            _compute_in_part(copy, body)


def _is_copy(op: mlir.Op) -> bool:
    """Whether ``op`` copies a buffer, element for element."""
    if mlir.name_of(op) != "linalg.generic" or len(list(op.operands)) != 2 or mlir.input_count(op) != 1:
        return False
    block, maps = mlir.block_of(op), mlir.indexing_maps(op)
    identical = all(mlir.is_identity(each) for each in maps)
    return identical and mlir.last(block).operands[0] == block.arguments[0]


def _is_whole(value: mlir.Value, body: mlir.Block) -> bool:
    """Whether ``value`` is an allocation of the block, of static sizes, row by row."""
    owner = mlir.defining(value)
    if owner is None or mlir.name_of(owner) != "memref.alloc" or owner.block != body:
        return False
    return None not in mlir.sizes_of(value.type) and "strided" not in str(value.type)


def _is_part(value: mlir.Value, body: mlir.Block) -> bool:
    """Whether ``value`` is a part, at a known place, of an allocation."""
    owner = mlir.defining(value)
    if owner is None or mlir.name_of(owner) != _SUBVIEW or not _is_static(owner):
        return False
    return _is_whole(owner.operands[0], body)


def _is_static(subview: mlir.Op) -> bool:
    """Whether a view has as many axes as its source, adjacent elements and a known place."""
    steps = mlir.integers(subview.attributes["static_strides"])
    numbers = [number for part in _box(subview) for number in part]
    same_rank = mlir.rank_of(subview.operands[0].type) == mlir.rank_of(subview.results[0].type)
    return len(list(subview.operands)) == 1 and set(steps) <= {1} and min(numbers) >= 0 and same_rank


def _box(subview: mlir.Op) -> Box:
    offsets, sizes = (mlir.integers(subview.attributes[name]) for name in ("static_offsets", "static_sizes"))
    return offsets, sizes


def _compute_in_part(copy: mlir.Op, body: mlir.Block) -> None:
    source, part = copy.operands
    view = mlir.definition(part)
    own, others = list(_accesses(source, body)), list(_accesses(view.operands[0], body))
    if not all(access.is_known for access in (*own, *others)):
        return
    touching = [access for access in others if access.op != copy and _overlap(access.box, _box(view))]
    if any(access.op == write.op for access in touching for write in own):
        return
    before = [access for access in touching if mlir.comes_before(access.op, copy)]
    if any(mlir.comes_before(write.op, access.op) for access in before for write in own):
        return
    writes = [access for access in touching if access.writes and mlir.comes_before(copy, access.op)]
    if any(mlir.comes_before(access.op, write.op) for access in writes for write in own):
        return
    updates = [access for access in own if access.writes and mlir.comes_before(copy, access.op)]
    if any(mlir.comes_before(update.op, access.op) for access in touching for update in updates):
        return
    _replace(copy, view)


def _accesses(buffer: mlir.Value, body: mlir.Block, box: Box | None = None) -> Iterator[_Access]:
    """The accesses of ``buffer`` and of views of it."""
    for user, _ in mlir.uses(buffer):
        if mlir.name_of(user) == _SUBVIEW and _is_static(user):
            yield from _accesses(user.results[0], body, _box(user) if box is None else box)
        else:
            yield _Access(mlir.within_block(user, body), user, buffer, box)


def _overlap(part: Box | None, other: Box) -> bool:
    if part is None:
        return True
    pairs = zip(*part, *other, strict=True)
    return all(first < second + length and second < first + size for first, size, second, length in pairs)


def _replace(copy: mlir.Op, view: mlir.Op) -> None:
    source, part = copy.operands
    owner, whole = mlir.definition(source), mlir.definition(view.operands[0])
    for op in (view, whole):
        if mlir.comes_before(owner, op):
            op.move_before(owner)
    if mlir.comes_before(view, whole):
        view.move_after(whole)
    copy.erase()
    _use_instead(source, part)
    owner.erase()


def _use_instead(old: mlir.Value, new: mlir.Value) -> None:
    """Let users of ``old`` use ``new``, which has other strides."""
    for user, number in list(mlir.uses(old)):
        user.operands[number] = new
        _update_type(user)


def _update_type(user: mlir.Op) -> None:
    """Give a subview, and the subviews of it, the strides of what they are parts of."""
    if mlir.name_of(user) == _SUBVIEW:
        (part,) = user.results
        part.set_type(_type_of_view(user, user.operands[0]))
        for other, _ in list(mlir.uses(part)):
            _update_type(other)


def _type_of_view(subview: mlir.Op, source: mlir.Value) -> mlir.Type:
    offsets, sizes = _box(subview)
    known, first = mlir.strides_of(source.type)
    strides = [stride or 0 for stride in known]
    place = (first or 0) + sum(offset * stride for offset, stride in zip(offsets, strides, strict=True))
    dims = "".join(f"{size}x" for size in sizes)
    element = mlir.element_type(source.type)
    return mlir.type_of(f"memref<{dims}{element}, strided<{strides}, offset: {place}>>")
