"""Collects the marked operations of an attention after bufferization, with its axes and operands."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.attention.grouped_heads import Repeat, read_repeat, stays
from kcache_compiler.lower.gemm.match import FEW_ROWS
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import read_nest
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.attention.causal_mask import Reach
from kcache_compiler.passes.attention.mark import COUNT, MARK, REACH, SCALE
from kcache_compiler.passes.product_bodies import read_products
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.loop_nest import Check, Nest
from kcache_compiler.shapes.formula import Formula, add, mul, product

_KINDS = ("f16", "bf16", "f32", "f64")


@dataclass(frozen=True)
class Walked:
    """An axis: its size, and its strides in queries, keys and values.

    ``name`` is the axis of the scores or, for columns of the values, the loop of the last contraction.
    """

    name: int
    size: Formula
    query: Formula = 0
    key: Formula = 0
    value: Formula = 0
    #: The outer and inner axis, if keys or values are repeated along this one.
    parts: tuple[Walked, ...] = ()


@dataclass(frozen=True)
class Operand:
    """A packed buffer: the offset of its first element, and the factor of its elements."""

    buffer: mlir.Value
    offset: Formula
    kind: str
    scale: float = 1.0


@dataclass
class Gathered:
    """One attention of ``main``, its operations in program order."""

    members: list[mlir.Op]
    roles: dict[str, list[mlir.Op]]
    wide: str
    operands: dict[str, Operand]
    #: For each loop of a member, the axis of the scores that it iterates over.
    dims: dict[mlir.Op, dict[int, int]]
    batch: list[Walked] = field(default_factory=list[Walked])
    rows: list[Walked] = field(default_factory=list[Walked])
    keys: list[Walked] = field(default_factory=list[Walked])
    depth: list[Walked] = field(default_factory=list[Walked])
    columns: list[Walked] = field(default_factory=list[Walked])
    checks: tuple[Check, ...] = ()
    spared: list[mlir.Op] = field(default_factory=list[mlir.Op])
    reach: Reach | None = None
    #: By operand, its repeat and the loop of the consumer over the repeated axis.
    repeats: dict[str, tuple[Repeat, int]] = field(default_factory=dict[str, "tuple[Repeat, int]"])

    def member(self, role: str) -> mlir.Op:
        return self.roles[role][0]

    @property
    def maker(self) -> dict[mlir.Value, mlir.Op]:
        """The producer of each buffer between members."""
        return {op.operands[-1]: op for ops in self.roles.values() for op in ops}

    def size(self, name: str) -> Formula:
        axes: list[Walked] = getattr(self, name)
        return product([axis.size for axis in axes])


def gather(unit: Unit, main: mlir.Op, shapes: Shapes) -> list[Gathered]:
    """The marked attentions that become one launch; moves the operations of each next to its last one."""
    marked: dict[str, list[tuple[str, mlir.Op]]] = {}
    for op in mlir.named(main, "linalg.generic"):
        if MARK in op.attributes:
            number, _, role = mlir.string_of(op.attributes[MARK]).partition(" ")
            marked.setdefault(number, []).append((role, op))
    statements: dict[mlir.Block, list[mlir.Op]] = {}
    attentions = [_gathered(unit, pairs, shapes, statements) for pairs in marked.values()]
    return [attention for attention in attentions if attention is not None]


def _gathered(
    unit: Unit,
    pairs: list[tuple[str, mlir.Op]],
    shapes: Shapes,
    statements: dict[mlir.Block, list[mlir.Op]],
) -> Gathered | None:
    """``statements``: the operations of blocks, in order, as far as they are known."""
    roles: dict[str, list[mlir.Op]] = {}
    for role, op in pairs:
        roles.setdefault(role, []).append(op)
    single = ("scores", "top", "weights", "total", "mixed")
    if any(len(roles.get(role, ())) != 1 for role in single):
        return None
    mixed = roles["mixed"][0]
    if COUNT not in mixed.attributes or mlir.int_of(mixed.attributes[COUNT]) != len(pairs):
        return None
    products = [read_products(roles[role][0]) for role in ("scores", "mixed")]
    if None in products:
        return None
    wide = str(mlir.element_of(roles["weights"][0].operands[-1].type))
    if wide not in ("f32", "f64") or any(product is None or product.wide != wide for product in products):
        return None
    attention = Gathered([op for _, op in pairs], roles, wide, {}, {})
    if not _lay_out(attention, shapes) or not _supported(unit, attention):
        return None
    if any(not stays(repeat, attention.members[-1]) for repeat, _ in attention.repeats.values()):
        return None
    block = attention.members[-1].operation.block
    if block not in statements:
        statements[block] = mlir.operations(block)
    if not _together(attention, statements[block]):
        return None
    copies = list(dict.fromkeys(repeat.copy for repeat, _ in attention.repeats.values()))
    for copy in copies:  # keeps the copy's source and the queries live until the launch, at the first member
        copy.move_before(attention.members[0])
        statements.pop(block, None)
    attention.members = copies + attention.members
    attention.spared += [mlir.definition(copy.operands[-1]) for copy in copies]
    attention.reach = _reach(attention)
    return attention


def _supported(unit: Unit, attention: Gathered) -> bool:
    kinds = [operand.kind for operand in attention.operands.values()]
    if (
        any(kind not in _KINDS for kind in kinds)
        or attention.operands["k"].kind != attention.operands["v"].kind
    ):
        return False
    if any(kind == "f64" for kind in kinds) and attention.wide != "f64":
        return False
    results = {str(mlir.element_of(operand.type)) for op in attention.members for operand in op.operands}
    if "f16" in results and not unit.target.converts_f16:
        return False
    rows = attention.size("rows")
    few_rows = isinstance(rows, int) and rows <= FEW_ROWS
    return isinstance(unit.target, Device) or not few_rows


def _lay_out(attention: Gathered, shapes: Shapes) -> bool:
    """Classify the axes, with their strides in the three operands."""
    scores, mixed = attention.member("scores"), attention.member("mixed")
    nests: dict[mlir.Op, Nest] = {}
    checks: dict[Check, None] = {}
    for op in attention.members:
        nests[op], numbers = read_nest(op, shapes)
        if any(number not in numbers for number in (len(op.operands) - 1,)):
            return False
        checks |= dict.fromkeys(nests[op].checks)
    attention.checks = tuple(checks)
    if not _name_loops(attention) or len(nests[scores].accesses) != 3 or len(nests[mixed].accesses) != 3:
        return False
    sizes = {axis: nests[scores].axes[dim].size for dim, axis in attention.dims[scores].items()}
    result_dims = {mlir.plain_dim(result) for result in _maps(attention.member("top"))[-1].results}
    key_axes = [
        axis for dim, axis in attention.dims[attention.member("top")].items() if dim not in result_dims
    ]
    if len(key_axes) != 1:
        return False
    key_axis = key_axes[0]
    score_dims = {axis: dim for dim, axis in attention.dims[scores].items()}
    strides = [access.strides for access in nests[scores].accesses[:2]]
    number = 0 if strides[0][score_dims[key_axis]] != 0 else 1
    if sizes[key_axis] == 1 or strides[1 - number][score_dims[key_axis]] != 0:
        return False
    weights = attention.member("share").operands[-1] if "share" in attention.roles else None
    weights = attention.member("guarded").operands[-1] if "guarded" in attention.roles else weights
    weights = attention.member("weights").operands[-1] if weights is None else weights
    value_number = next((n for n in (0, 1) if mixed.operands[1 - n] == weights), None)
    if value_number is None:
        return False
    query_strides = _operand(attention, "q", scores, 1 - number, nests)
    key_strides = _repeated(attention, "k", scores, number, shapes)
    key_strides = key_strides or _operand(attention, "k", scores, number, nests)
    value_strides = _repeated(attention, "v", mixed, value_number, shapes)
    value_strides = value_strides or _operand(attention, "v", mixed, value_number, nests)
    if query_strides is None or key_strides is None or value_strides is None:
        return False
    mixed_dims = {axis: dim for dim, axis in attention.dims[mixed].items()}
    for axis, size in sizes.items():
        value = value_strides[mixed_dims[axis]]
        walked = Walked(axis, size, query_strides[score_dims[axis]], key_strides[score_dims[axis]], value)
        if size == 1:
            continue
        parts = _parts(attention, walked, {"k": score_dims[axis], "v": mixed_dims[axis]})
        if parts is None or (parts and (axis == key_axis or query_strides[score_dims[axis]] == 0)):
            return False
        walked = replace(walked, parts=parts)
        if axis == key_axis:
            attention.keys.append(walked)
        elif walked.key == 0 and value == 0:
            attention.rows.append(walked)
        else:
            attention.batch.append(walked)
    for dim, axis in enumerate(nests[scores].axes):
        if dim not in attention.dims[scores] and axis.size != 1:
            attention.depth.append(Walked(dim, axis.size, query_strides[dim], key_strides[dim]))
    for dim, axis in enumerate(nests[mixed].axes):
        if dim not in attention.dims[mixed] and axis.size != 1:
            attention.columns.append(Walked(dim, axis.size, value=value_strides[dim]))
    return True


def _parts(attention: Gathered, walked: Walked, loops: dict[str, int]) -> tuple[Walked, ...] | None:
    """Split an axis over repeated keys or values; () if nothing repeats, None if the counts differ."""
    repeats = {name: repeat for name, (repeat, loop) in attention.repeats.items() if loop == loops[name]}
    times = {repeat.times for repeat in repeats.values()}
    if len(times) != 1:
        return None if times else ()
    (count,) = times
    if not isinstance(walked.size, int) or not isinstance(count, int) or walked.size % count:
        return None
    key, value = (
        (walked.key, 0) if "k" in repeats else (mul(count, walked.key), walked.key),
        (walked.value, 0) if "v" in repeats else (mul(count, walked.value), walked.value),
    )
    outer = Walked(walked.name, walked.size // count, mul(count, walked.query), key[0], value[0])
    return outer, Walked(walked.name, count, walked.query, key[1], value[1])


def _repeated(
    attention: Gathered, name: str, op: mlir.Op, number: int, shapes: Shapes
) -> list[Formula] | None:
    """Strides by loop of ``op`` in the source that its operand repeats."""
    repeat = read_repeat(op.operands[number], attention.members, shapes)
    if repeat is None:
        return None
    dims = [mlir.plain_dim(result) for result in _maps(op)[number].results]
    strides: list[Formula] = [0] * _maps(op)[number].n_dims
    for dim, stride in zip(dims, repeat.strides, strict=True):
        if dim is None or dims.count(dim) != 1:
            return None
        strides[dim] = stride
    loop = dims[repeat.axis]
    if loop is None or loop not in attention.dims[op]:  # the width of keys or values is not an axis of scores
        return None
    attention.repeats[name] = repeat, loop
    kind = str(mlir.element_of(repeat.source.type))
    attention.operands[name] = Operand(repeat.source, repeat.offset, kind)
    attention.checks = (*attention.checks, *repeat.checks)
    return strides


def _operand(
    attention: Gathered, name: str, op: mlir.Op, number: int, nests: dict[mlir.Op, Nest]
) -> list[Formula] | None:
    """Strides by loop of ``op`` in its operand, or in the source that the operand was prepared from."""
    buffer, access = op.operands[number], nests[op].accesses[number]
    prepared = next((op for op in attention.roles.get("prepared", ()) if op.operands[-1] == buffer), None)
    if prepared is None:
        attention.operands[name] = Operand(buffer, access.offset, str(mlir.element_of(buffer.type)))
        return list(access.strides)
    reads = [n for n, operand in enumerate(prepared.operands) if mlir.is_memref(operand.type)][:-1]
    source = next((n for n in reads if mlir.is_permutation(_maps(prepared)[n])), None)
    memory_operands = [n for n, operand in enumerate(prepared.operands) if mlir.is_memref(operand.type)]
    if source is None or SCALE not in prepared.attributes or access.offset != 0:
        return None
    source_access = nests[prepared].accesses[memory_operands.index(source)]
    scale = mlir.float_of(prepared.attributes[SCALE])
    kind = str(mlir.element_of(prepared.operands[source].type))
    attention.operands[name] = Operand(prepared.operands[source], source_access.offset, kind, scale)
    strides: list[Formula] = [0] * len(access.strides)
    for axis, result in enumerate(_maps(op)[number].results):
        dim = mlir.plain_dim(result)
        if dim is None:
            return None
        strides[dim] = add(strides[dim], source_access.strides[axis])
    return strides


def _maps(op: mlir.Op) -> list[mlir.AffineMap]:
    return mlir.indexing_maps(op)


def _name_loops(attention: Gathered) -> bool:
    """Map each loop of a member to an axis of the scores, through the buffers between members."""
    scores = attention.member("scores")
    plain = [mlir.plain_dim(result) for result in _maps(scores)[-1].results]
    if None in plain:
        return False
    attention.dims[scores] = {dim: axis for axis, dim in enumerate(plain) if dim is not None}
    axes_by_buffer: dict[mlir.Value, list[int | None]] = {scores.operands[-1]: list(range(len(plain)))}
    pending = [
        op for op in attention.members if op != scores and not _has_role(attention, op, "prepared", "tail")
    ]
    progress = True
    while progress:
        progress = False
        for op in list(pending):
            named = _named(op, axes_by_buffer)
            if named is None:
                continue
            attention.dims[op] = named
            results = [mlir.plain_dim(result) for result in _maps(op)[-1].results]
            axes_by_buffer[op.operands[-1]] = [None if dim is None else named.get(dim) for dim in results]
            pending.remove(op)
            progress = True
    # The remaining operations compute masks: the consumer determines their loops.
    return all(_has_role(attention, op, "before") for op in pending)


def _has_role(attention: Gathered, op: mlir.Op, *roles: str) -> bool:
    return any(op in attention.roles.get(role, ()) for role in roles)


def _named(op: mlir.Op, axes_by_buffer: dict[mlir.Value, list[int | None]]) -> dict[int, int] | None:
    named: dict[int, int] = {}
    for operand, access in zip(list(op.operands)[:-1], _maps(op), strict=False):
        if operand not in axes_by_buffer:
            continue
        for result, axis in zip(access.results, axes_by_buffer[operand], strict=True):
            dim = mlir.plain_dim(result)
            if dim is None or axis is None:
                return None
            named[dim] = axis
    return named or None


def _together(attention: Gathered, statements: list[mlir.Op]) -> bool:
    """Move members, and the fills of their results, next to the last one, if no dependence forbids it.

    ``statements`` are the operations of their block, in order, before and after.
    """
    starts: list[mlir.Op] = []
    for role in ("scores", "top", "total", "all", "mixed"):
        for op in attention.roles.get(role, ()):
            target = op.operands[-1]
            users = [user for user, _ in mlir.uses(target) if user not in attention.members]
            starts += [user for user in users if _writes_only(user, target)]
    moved = [*attention.members, *starts]
    last = attention.members[-1]
    final = last.operands[-1]
    for op in moved:
        if not mlir.same_block(op, last):
            return False
        target = op.operands[-1]
        if target != final and not _local(target, moved):
            return False
        if target == final and op not in (last, *starts):
            return False
    if not _unnoticed(moved, last, statements):
        return False
    attention.spared = [
        mlir.definition(member.operands[-1]) for member in attention.members if member.operands[-1] != final
    ]
    attention.spared = list(dict.fromkeys(attention.spared))
    others = [op for op in moved if op != last]
    for op in others:
        op.move_before(last)
    moving = set(others)
    statements[:] = [op for op in statements if op not in moving]
    place = statements.index(last)
    statements[place:place] = others
    attention.members = [*others, last]
    return True


def _writes_only(op: mlir.Op, target: mlir.Value) -> bool:
    if mlir.name_of(op) != "linalg.generic" or len(mlir.operations(mlir.block_of(op))) != 1:
        return False
    return op.operands[-1] == target and not any(
        mlir.is_memref(operand.type) for operand in list(op.operands)[:-1]
    )


def _local(buffer: mlir.Value, members: list[mlir.Op]) -> bool:
    """Whether ``buffer`` is an allocation that only ``members`` use."""
    owner = mlir.defining(buffer)
    allocated = owner is not None and mlir.name_of(owner) == "memref.alloc"
    return allocated and all(user in members for user, _ in mlir.uses(buffer))


def _unnoticed(members: list[mlir.Op], last: mlir.Op, statements: list[mlir.Op]) -> bool:
    """Whether nothing between a member and the last one writes its operands or accesses the result."""
    read: set[mlir.Value] = set()
    own = set(members)
    for op in statements[: statements.index(last)]:
        if op in own:
            read |= {memory.root_of(operand) for operand in op.operands if mlir.is_memref(operand.type)}
        elif read and _effects(op) and not _harmless(op, read, memory.root_of(last.operands[-1])):
            return False
    return True


def _harmless(op: mlir.Op, read: set[mlir.Value], result: mlir.Value) -> bool:
    """Whether ``op`` is structured, writes no buffer of ``read`` and does not access ``result``."""
    if mlir.name_of(op) != "linalg.generic":
        return False
    inputs = mlir.input_count(op)
    written_roots = {memory.root_of(operand) for operand in list(op.operands)[inputs:]}
    loaded = [inner.operands[0] for inner in mlir.walk(op) if mlir.name_of(inner) == "memref.load"]
    accessed = [operand for operand in (*op.operands, *loaded) if mlir.is_memref(operand.type)]
    return not (written_roots & read or result in map(memory.root_of, accessed))


def _effects(op: mlir.Op) -> bool:
    name = mlir.name_of(op)
    pure = (
        "memref.alloc",
        "memref.get_global",
        "memref.dim",
        *memory.VIEWS,
        "builtin.unrealized_conversion_cast",
    )
    return not (name in pure or name.startswith(("arith.", "math.")))


def bits(number: float) -> int:
    return struct.unpack("<q", struct.pack("<d", number))[0]


def _reach(attention: Gathered) -> Reach | None:
    """The causal mask, if its row axis is one of the rows, which it then becomes the outermost of."""
    mixed = attention.member("mixed")
    if REACH not in mixed.attributes:
        return None
    row, shift, limit, added = mlir.string_of(mixed.attributes[REACH]).split()
    first = [axis for axis in attention.rows if axis.name == int(row)]
    if not first:
        return None
    attention.rows = first + [axis for axis in attention.rows if axis not in first]
    return Reach(int(row), int(shift), float(limit), added == "1")
