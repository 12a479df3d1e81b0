"""Control flow of StableHLO as structured control flow on tensors."""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, bufferization, scf, tensor
from kcache_compiler.passes.generic import build_generic, identity
from kcache_compiler.passes.legalize.elementwise import empty_like

#: What computes the offsets of slices in linalg.
_OF_NUMBERS = (
    *("tensor.extract", "tensor.empty", "linalg.generic"),
    *("arith.index_cast", "arith.maxsi", "arith.minsi", "arith.addi", "arith.muli"),
)


def to_scf(module: mlir.Module) -> None:
    """Lower ``while``, ``if`` and ``case`` to ``scf``, inner operations first."""
    handlers = {"stablehlo.while": _while, "stablehlo.if": _if, "stablehlo.case": _case}
    for op in reversed(mlir.named(module, *handlers)):
        handlers[mlir.name_of(op)](op)


def _move_body(source: mlir.Block, target: mlir.Block) -> list[mlir.Value]:
    """Move the operations of ``source`` to the end of ``target``; the operands of its return."""
    for old, new in zip(list(source.arguments), list(target.arguments), strict=True):
        old.replace_all_uses_with(new)
    operations = mlir.operations(source)
    with mlir.at_end(target):
        anchor = mlir.create("stablehlo.return", [])
    for operation in operations[:-1]:
        operation.move_before(anchor)
    values = list(operations[-1].operands)
    operations[-1].erase()
    anchor.erase()
    return values


def _scalar(value: mlir.Value) -> mlir.Value:
    return tensor.extract(value, [])


def _while(op: mlir.Op) -> None:
    types = [operand.type for operand in op.operands]
    with mlir.before(op):
        loop = scf.WhileOp(types, list(op.operands)).operation
    first, second = mlir.new_block(loop, 0, types), mlir.new_block(loop, 1, types)
    condition = _move_body(mlir.block_of(op, 0), first)[0]
    with mlir.at_end(first):
        scf.condition(_scalar(condition), list(first.arguments))
    values = _move_body(mlir.block_of(op, 1), second)
    with mlir.at_end(second):
        scf.yield_(values)
    _replace(op, loop)


def _branch(op: mlir.Op, region: int, target: mlir.Op, into: int) -> None:
    block = mlir.block_of(target, into)
    values = _move_body(mlir.block_of(op, region), block)
    with mlir.at_end(block):
        scf.yield_(values)


def _if(op: mlir.Op) -> None:
    with mlir.before(op):
        chosen = mlir.if_else(_scalar(op.operands[0]), [result.type for result in op.results])
    _branch(op, 0, chosen, 0)
    _branch(op, 1, chosen, 1)
    _replace(op, chosen)


def _case(op: mlir.Op) -> None:
    """The last branch is taken for every index that is out of range."""
    count = len(op.operation.regions)
    with mlir.before(op):
        index = arith.index_cast(mlir.index_type(), _scalar(op.operands[0]))
        types = [result.type for result in op.results]
        chosen = scf.IndexSwitchOp(types, index, range(count - 1)).operation
    _branch(op, count - 1, chosen, 0)
    for number in range(count - 1):
        _branch(op, number, chosen, number + 1)
    _replace(op, chosen)


def _replace(old: mlir.Op, new: mlir.Op) -> None:
    for before, after in zip(old.results, new.results, strict=True):
        before.replace_all_uses_with(after)
    old.erase()


def yield_in_place(module: mlir.Module) -> None:
    """Make every loop yield into the buffers that it came in with, and every branch into fresh ones.

    What a loop body yields is copied to fresh tensors and from these into the loop's own
    arguments, so that one buffer serves all iterations and swaps stay right; a carried tensor of which
    nothing but a slice is replaced is not copied. Runs on linalg.
    """
    for choice in mlir.named(module, "arith.select"):
        if any(map(_is_slice, list(choice.operands)[1:])):  # whose buffer has its own strides
            _choose_elements(choice)
    if not mlir.named(module, "scf.while", "scf.if", "scf.index_switch"):
        return
    for loop in mlir.named(module, "scf.while"):
        for choice in mlir.named(loop, "arith.select"):
            if mlir.is_tensor(choice.results[0].type):
                _choose_elements(choice)
    for loop in mlir.named(module, "scf.while"):
        _compute_offsets_first(_forward_all(loop))
    for loop in mlir.named(module, "scf.while"):
        _yield_in_place(loop)
    for branches in mlir.named(module, "scf.if", "scf.index_switch"):
        for number in range(len(branches.operation.regions)):
            if len(branches.operation.regions[number].blocks) == 0:
                continue
            yielded = mlir.last(mlir.block_of(branches, number))
            with mlir.before(yielded):
                for position, value in enumerate(list(yielded.operands)):
                    yielded.operands[position] = _fresh_copy(value)


def _is_slice(value: mlir.Value) -> bool:
    """Whether a tensor is a slice of another one, perhaps reshaped."""
    owner = mlir.defining(value)
    while owner is not None and mlir.name_of(owner) in ("tensor.collapse_shape", "tensor.expand_shape"):
        owner = mlir.defining(owner.operands[0])
    return owner is not None and mlir.name_of(owner) == "tensor.extract_slice"


def _choose_elements(choice: mlir.Op) -> None:
    """Select elements instead of buffers.

    A carried buffer may change while the selected one is in use; a slice has other strides than a buffer.
    """
    kind = choice.results[0].type
    rank = mlir.rank_of(kind)
    same = identity(rank)
    maps = [same.partition("->")[0] + "-> ()", *[same] * 3]

    def body(scalars: list[mlir.Value]) -> list[mlir.Value]:
        return [arith.select(*scalars[:3])]

    with mlir.before(choice):
        fresh = empty_like(choice.operands[1], kind)
        result = build_generic(list(choice.operands), [fresh], maps, ["parallel"] * rank, body)
    choice.results[0].replace_all_uses_with(result.results[0])
    choice.erase()


def _forward_all(loop: mlir.Op) -> mlir.Op:
    """The loop with every carried tensor passed on to its body; dead ones are not yet."""
    carried, condition = list(mlir.block_of(loop).arguments), mlir.last(mlir.block_of(loop))
    forwarded = set(list(condition.operands)[1:])
    missing = [value for value in carried if mlir.is_tensor(value.type) and value not in forwarded]
    if not missing:
        return loop
    types = [*(result.type for result in loop.results), *(value.type for value in missing)]
    with mlir.before(loop):
        wider = scf.WhileOp(types, list(loop.operands)).operation
    with mlir.before(condition):
        scf.condition(condition.operands[0], [*condition.operands[1:], *missing])
    condition.erase()
    for number in range(2):
        mlir.move_block(loop, wider, number)
    for value in missing:
        mlir.block_of(wider, 1).add_argument(value.type, mlir.unknown_location())
    for before, after in zip(loop.results, wider.results, strict=False):
        before.replace_all_uses_with(after)
    loop.erase()
    return wider


def _compute_offsets_first(loop: mlir.Op) -> None:
    """Move what computes the offsets of replaced slices to the start of the body.

    So the slice is known where the operation begins that computes its elements, which then writes them there.
    """
    body = mlir.block_of(loop, 1)
    operations = mlir.operations(body)
    chain: dict[mlir.Op, None] = {}
    for op in operations:
        if mlir.name_of(op) == "tensor.insert_slice":
            for offset in list(op.operands)[2:]:
                offsets = _scalar_chain(offset, body)
                chain |= offsets or {}
    following = next(op for op in operations if op not in chain)
    for op in operations:
        if op in chain:
            op.move_before(following)


def _scalar_chain(value: mlir.Value, body: mlir.Block) -> dict[mlir.Op, None] | None:
    """The operations of ``body`` that compute a number, if they read nothing but numbers."""
    owner = mlir.defining(value)
    if owner is None or owner.block != body:
        return {}
    read = [*owner.operands, *(mlir.outside_values(owner) if mlir.has_regions(owner) else ())]
    if mlir.name_of(owner) not in _OF_NUMBERS or not all(map(_is_number, [*read, *owner.results])):
        return None
    chain: dict[mlir.Op, None] = {}
    for operand in read:
        before = _scalar_chain(operand, body)
        if before is None:
            return None
        chain |= before
    return chain | {owner: None}


def _is_number(value: mlir.Value) -> bool:
    return not mlir.is_tensor(value.type) or mlir.rank_of(value.type) == 0


def _yield_in_place(loop: mlir.Op) -> None:
    """Copy the values that the body yields into the buffers of the carried values."""
    forwarded = list(mlir.last(mlir.block_of(loop)).operands)[1:]
    positions = dict(zip(forwarded, mlir.block_of(loop, 1).arguments, strict=True))
    yielded = mlir.last(mlir.block_of(loop, 1))
    with mlir.before(yielded):
        copied = [
            (number, positions[argument])
            for number, argument in enumerate(mlir.block_of(loop).arguments)
            if mlir.is_tensor(argument.type)
            and not _replaces_slices(yielded.operands[number], positions[argument])
        ]
        fresh = [_fresh_copy(yielded.operands[number]) for number, _ in copied]
        for (number, target), value in zip(copied, fresh, strict=True):
            yielded.operands[number] = _copy(value, target)


def _replaces_slices(value: mlir.Value, argument: mlir.Value) -> bool:
    """Whether ``value`` is the carried ``argument`` with replaced slices, and nothing else uses either.

    An inner loop replaces slices of its own carried value, which is then what it came in with.
    """
    while len(list(mlir.uses(value))) == 1:
        owner = mlir.defining(value)
        if value == argument:
            return True
        if owner is not None and mlir.name_of(owner) == "scf.while":
            source = _replaced_by_loop(owner, value)
        elif owner is not None and mlir.name_of(owner) == "tensor.insert_slice":
            source = owner.operands[1] if owner.operands[0] != argument else None
        else:
            return False
        if source is None:
            return False
        value = source
    return False


def _replaced_by_loop(loop: mlir.Op, result: mlir.Value) -> mlir.Value | None:
    """What comes in for a result of a loop that replaces slices of it, and has no other use of it."""
    position = list(loop.results).index(result)
    forwarded = list(mlir.last(mlir.block_of(loop)).operands)[1:][position]
    arguments = list(mlir.block_of(loop).arguments)
    if forwarded not in arguments or len(list(mlir.uses(forwarded))) != 1:
        return None
    number = arguments.index(forwarded)
    yielded = mlir.last(mlir.block_of(loop, 1)).operands[number]
    carried = mlir.block_of(loop, 1).arguments[position]
    return loop.operands[number] if _replaces_slices(yielded, carried) else None


def _copy(source: mlir.Value, target: mlir.Value) -> mlir.Value:
    """``source`` stored into ``target``; not a generic, as copies between tensors fold away."""
    return bufferization.MaterializeInDestinationOp(source.type, source, target).results[0]


def _fresh_copy(value: mlir.Value) -> mlir.Value:
    """A copy of a tensor in its own buffer."""
    if not mlir.is_tensor(value.type):
        return value
    return bufferization.alloc_tensor(value.type, [], copy=value)


def drop_dynamic_branch_layouts(module: mlir.Module) -> None:
    """Drop the dynamic layout that bufferization gives to branches whose buffers are all contiguous."""
    for branches in mlir.named(module, "scf.if", "scf.index_switch"):
        if not len(branches.results):
            continue  # it may have one branch only
        regions = range(len(branches.operation.regions))
        yields = [mlir.last(mlir.block_of(branches, number)) for number in regions]
        for position, result in enumerate(branches.results):
            sources = [
                _uncast(terminator.operands[position]) for terminator in yields if len(terminator.operands)
            ]
            kinds = {str(source.type) for source in sources}
            if not mlir.is_memref(result.type) or len(kinds) != 1 or "strided" in kinds.pop():
                continue
            for yield_op, source in zip(yields, sources, strict=True):
                yield_op.operands[position] = source
            result.set_type(sources[0].type)


def _uncast(buffer: mlir.Value) -> mlir.Value:
    owner = mlir.defining(buffer)
    return owner.operands[0] if owner is not None and mlir.name_of(owner) == "memref.cast" else buffer
