"""Stores values in buffers of other values, element for element.

``store_in_results``: an intermediate in the result that is computed from it. The softmax of one long row
takes three launches: the maximum, the exponentials with their sum, and the division by the sum. The
exponentials are stored where the division writes, so that the launches access two buffers of the length of
the row instead of three.

``replace_summands``: the result of a product in the tensor that is added to it, as in a residual network. The
launch accesses one buffer of this size instead of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, read_nest
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.loop_nest import Nest
from kcache_compiler.schedule.split_reductions import needs_chunks

#: Views of all elements of a buffer; with dynamic sizes some have further operands.
_RESHAPES = ("memref.collapse_shape", "memref.expand_shape")


def store_in_results(
    main: mlir.Op, results: Sequence[mlir.Value], launched: Set[mlir.Op], shapes: Shapes
) -> None:
    """Replace allocations of ``main`` by ``results``, where that is not observable and no launch needs both.

    The result, or a view of all of it, has one use: an elementwise operation, the last user of the
    allocation, which reads the allocation and writes the result at the same index. It also reads a total over
    the allocation that is known only after a launch: an operation that may share a launch with the producer
    of the allocation finds it in registers. ``launched`` operations already belong to a launch.
    """
    for argument in results:
        result, views, users = argument, list[mlir.Op](), _users(argument)
        while len(users) == 1 and mlir.name_of(users[0]) in _RESHAPES and len(users[0].operands) == 1:
            views.append(users[0])
            result = users[0].results[0]
            users = _users(result)
        if len(users) != 1 or mlir.name_of(users[0]) != "linalg.generic" or mlir.parent_of(users[0]) != main:
            continue
        buffer = _replaceable(users[0], result, launched, shapes)
        if buffer is not None:
            for view in reversed(views):
                view.move_before(mlir.operations(mlir.block_of(main))[0])
            buffer.replace_all_uses_with(result)
            mlir.definition(buffer).erase()


def replace_summands(main: mlir.Op, launches: Sequence[tuple[list[mlir.Op], Outlined]]) -> list[mlir.Op]:
    """Store results of ``launches``, which are in order, in the ``replaceable`` buffer of their launch where
    that is not read later; returns the allocations that become unused.

    Both are allocations of ``main`` of one static type that only launches outside of loops and branches use.
    None uses the buffer after the launch or the result before it, and the launch has no other view of the
    buffer.
    """
    numbered = [(op, place) for place, (generics, _) in enumerate(launches) for op in generics]
    places = {op: place for op, place in numbered if mlir.parent_of(op) == main}
    replaced: dict[mlir.Value, mlir.Value] = {}
    last: dict[mlir.Value, int] = {}
    for place, (_, launch) in enumerate(launches):
        if launch.replaceable is None:
            continue
        result, summand = (launch.buffers[number] for number in launch.replaceable)
        if result.type != summand.type or None in mlir.sizes_of(result.type):
            continue
        if not (_is_allocated(main, result) and _is_allocated(main, summand)):
            continue
        buffer = replaced.get(summand, summand)
        roots = [memory.root_of(each) for each in launch.buffers]
        read, written = _places(summand, places), _places(result, places)
        if read is None or written is None or min(written) < place:
            continue
        if (
            max(last.get(buffer, 0), *read) <= place
            and [replaced.get(r, r) for r in roots].count(buffer) == 1
        ):
            replaced[result] = buffer
            last[buffer] = max(written)
    for result, buffer in replaced.items():
        mlir.definition(buffer).move_before(mlir.operations(mlir.block_of(main))[0])
        result.replace_all_uses_with(buffer)
    for _, launch in launches if replaced else ():
        for each in (launch, *launch.after):
            each.buffers = [replaced.get(buffer, buffer) for buffer in each.buffers]
    return [mlir.definition(result) for result in replaced]


def _is_allocated(main: mlir.Op, buffer: mlir.Value) -> bool:
    owner = mlir.defining(buffer)
    return owner is not None and mlir.name_of(owner) == "memref.alloc" and mlir.parent_of(owner) == main


def _places(buffer: mlir.Value, places: Mapping[mlir.Op, int]) -> list[int] | None:
    """The places of the launches that use ``buffer`` or views of it; None if other operations use it."""
    found, pending = list[int](), [buffer]
    while pending:
        for user in _users(pending.pop()):
            if user in places:
                found.append(places[user])
            elif mlir.name_of(user) in memory.VIEWS:
                pending += user.results
            else:
                return None
    return found


def _users(value: mlir.Value) -> list[mlir.Op]:
    return [user for user, _ in mlir.uses(value)]


def _replaceable(
    generic: mlir.Op, result: mlir.Value, launched: Set[mlir.Op], shapes: Shapes
) -> mlir.Value | None:
    """The allocation that ``generic``, the only user of ``result``, reads where it writes ``result``."""
    operands, maps = list(generic.operands), mlir.indexing_maps(generic)
    inputs, position = mlir.input_count(generic), operands.index(result)
    is_read = position < inputs or bool(list(mlir.block_of(generic).arguments[position].uses))
    elementwise = all("parallel" in kind for kind in mlir.iterator_types(generic))
    if is_read or not elementwise or not mlir.is_permutation(maps[position]):
        return None
    for operand, index_map in zip(operands[:inputs], maps, strict=False):
        owner = mlir.defining(operand)
        if owner is None or mlir.name_of(owner) != "memref.alloc" or operands.count(operand) != 1:
            continue
        alike = operand.type == result.type and index_map == maps[position]
        if not alike or shapes.sizes(operand) != shapes.sizes(result):
            continue
        users = {user for user, _ in mlir.uses(operand)}
        if launched.isdisjoint(users) and _ends(generic, operand, users - {generic}, shapes):
            return operand
    return None


def _ends(generic: mlir.Op, buffer: mlir.Value, users: Set[mlir.Op], shapes: Shapes) -> bool:
    """Whether ``generic`` follows ``users`` and reads a total over ``buffer`` that ends a launch."""
    if any(mlir.name_of(user) != "linalg.generic" for user in users):
        return False
    read = {memory.root_of(operand) for operand in _inputs(generic)}
    reads_total = any(
        memory.root_of(total) in read and buffer in _inputs(user)
        for user in users
        for total in list(user.operands)[mlir.input_count(user) :]
        if total != buffer and _needs_launch(read_nest(user, shapes)[0])
    )
    if not reads_total:
        return False
    block = mlir.operations(generic.operation.block)
    return users <= set(block[: block.index(generic)])


def _needs_launch(nest: Nest) -> bool:
    """Whether a reduction ends with a launch: threads compute it in chunks, or its loops have no row."""
    return needs_chunks(nest) or not any(axis.parallel for axis in nest.axes)


def _inputs(generic: mlir.Op) -> list[mlir.Value]:
    return list(generic.operands)[: mlir.input_count(generic)]
