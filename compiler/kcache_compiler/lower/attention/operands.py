"""Marked operations on buffers, together again: the axes of an attention, and where its operands lie."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

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
    """An axis: its size, and strides in queries, keys and values; ``name`` is the axis of the scores or, for
    columns of the values, the loop of the last contraction.
    """

    name: int
    size: Formula
    query: Formula = 0
    key: Formula = 0
    value: Formula = 0
    #: Two axes for the library where keys or values are repeated: outer and inner.
    parts: tuple[Walked, ...] = ()


@dataclass(frozen=True)
class Operand:
    """A buffer that is packed, the offset of its first element, and what its elements are multiplied by."""

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
    #: For each loop of a member the axis of the scores that it walks.
    dims: dict[mlir.Op, dict[int, int]]
    batch: list[Walked] = field(default_factory=list[Walked])
    rows: list[Walked] = field(default_factory=list[Walked])
    keys: list[Walked] = field(default_factory=list[Walked])
    depth: list[Walked] = field(default_factory=list[Walked])
    columns: list[Walked] = field(default_factory=list[Walked])
    checks: tuple[Check, ...] = ()
    spared: list[mlir.Op] = field(default_factory=list[mlir.Op])
    reach: Reach | None = None
    #: By operand what repeats it, and the loop of its reader that walks over the repeated axis.
    repeats: dict[str, tuple[Repeat, int]] = field(default_factory=dict[str, "tuple[Repeat, int]"])

    def one(self, role: str) -> mlir.Op:
        return self.roles[role][0]

    @property
    def maker(self) -> dict[mlir.Value, mlir.Op]:
        """For each buffer between members the operation that leaves it."""
        return {op.operands[-1]: op for ops in self.roles.values() for op in ops}

    def size(self, name: str) -> Formula:
        axes: list[Walked] = getattr(self, name)
        return product([axis.size for axis in axes])


def gather(unit: Unit, main: mlir.Op, shapes: Shapes) -> list[Gathered]:
    """Every marked attention that is one launch; its operations now stand together, where the last one is."""
    marked: dict[str, list[tuple[str, mlir.Op]]] = {}
    for op in mlir.named(main, "linalg.generic"):
        if MARK in op.attributes:
            number, _, role = mlir.string_of(op.attributes[MARK]).partition(" ")
            marked.setdefault(number, []).append((role, op))
    found = [_gathered(unit, pairs, shapes) for pairs in marked.values()]
    return [one for one in found if one is not None]


def _gathered(unit: Unit, pairs: list[tuple[str, mlir.Op]], shapes: Shapes) -> Gathered | None:
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
    if wide not in ("f32", "f64") or any(one is None or one.wide != wide for one in products):
        return None
    found = Gathered([op for _, op in pairs], roles, wide, {}, {})
    if not _lay_out(found, shapes) or not _supported(unit, found):
        return None
    if any(not stays(repeat, found.members[-1]) for repeat, _ in found.repeats.values()):
        return None
    if not _together(found):
        return None
    copies = list(dict.fromkeys(repeat.copy for repeat, _ in found.repeats.values()))
    for (
        copy
    ) in copies:  # what it reads, and queries, live until the launch, which is where its first member is
        copy.move_before(found.members[0])
    found.members = copies + found.members
    found.spared += [mlir.definition(copy.operands[-1]) for copy in copies]
    found.reach = _reach(found)
    return found


def _supported(unit: Unit, found: Gathered) -> bool:
    kinds = [one.kind for one in found.operands.values()]
    if any(kind not in _KINDS for kind in kinds) or found.operands["k"].kind != found.operands["v"].kind:
        return False
    if any(kind == "f64" for kind in kinds) and found.wide != "f64":
        return False
    results = {str(mlir.element_of(operand.type)) for op in found.members for operand in op.operands}
    if "f16" in results and not ("f16c" in unit.target.features or unit.target.triple.startswith("aarch64")):
        return False
    rows = found.size("rows")
    return not (isinstance(rows, int) and rows <= FEW_ROWS)


def _lay_out(found: Gathered, shapes: Shapes) -> bool:
    """Sort the axes by what they do, with strides in the three operands."""
    scores, mixed = found.one("scores"), found.one("mixed")
    nests: dict[mlir.Op, Nest] = {}
    checks: dict[Check, None] = {}
    for op in found.members:
        nests[op], numbers = read_nest(op, shapes)
        if any(number not in numbers for number in (len(op.operands) - 1,)):
            return False
        checks |= dict.fromkeys(nests[op].checks)
    found.checks = tuple(checks)
    if not _name_loops(found) or len(nests[scores].accesses) != 3 or len(nests[mixed].accesses) != 3:
        return False
    sizes = {axis: nests[scores].axes[dim].size for dim, axis in found.dims[scores].items()}
    kept = {mlir.plain_dim(result) for result in _maps(found.one("top"))[-1].results}
    key_axes = [axis for dim, axis in found.dims[found.one("top")].items() if dim not in kept]
    if len(key_axes) != 1:
        return False
    key_axis = key_axes[0]
    back = {axis: dim for dim, axis in found.dims[scores].items()}
    strides = [access.strides for access in nests[scores].accesses[:2]]
    number = 0 if strides[0][back[key_axis]] != 0 else 1
    if sizes[key_axis] == 1 or strides[1 - number][back[key_axis]] != 0:
        return False
    weights = found.one("share").operands[-1] if "share" in found.roles else None
    weights = found.one("guarded").operands[-1] if "guarded" in found.roles else weights
    weights = found.one("weights").operands[-1] if weights is None else weights
    value_number = next((n for n in (0, 1) if mixed.operands[1 - n] == weights), None)
    if value_number is None:
        return False
    query_strides = _operand(found, "q", scores, 1 - number, nests)
    key_strides = _repeated(found, "k", scores, number, shapes)
    key_strides = key_strides or _operand(found, "k", scores, number, nests)
    value_strides = _repeated(found, "v", mixed, value_number, shapes)
    value_strides = value_strides or _operand(found, "v", mixed, value_number, nests)
    if query_strides is None or key_strides is None or value_strides is None:
        return False
    of_axis = {axis: dim for dim, axis in found.dims[mixed].items()}
    for axis, size in sizes.items():
        value = value_strides[of_axis[axis]]
        walked = Walked(axis, size, query_strides[back[axis]], key_strides[back[axis]], value)
        if size == 1:
            continue
        parts = _parts(found, walked, {"k": back[axis], "v": of_axis[axis]})
        if parts is None or (parts and (axis == key_axis or query_strides[back[axis]] == 0)):
            return False
        walked = replace(walked, parts=parts)
        if axis == key_axis:
            found.keys.append(walked)
        elif walked.key == 0 and value == 0:
            found.rows.append(walked)
        else:
            found.batch.append(walked)
    for dim, axis in enumerate(nests[scores].axes):
        if dim not in found.dims[scores] and axis.size != 1:
            found.depth.append(Walked(dim, axis.size, query_strides[dim], key_strides[dim]))
    for dim, axis in enumerate(nests[mixed].axes):
        if dim not in found.dims[mixed] and axis.size != 1:
            found.columns.append(Walked(dim, axis.size, value=value_strides[dim]))
    return True


def _parts(found: Gathered, walked: Walked, loops: dict[str, int]) -> tuple[Walked, ...] | None:
    """An axis over repeated keys or values as two; none where nothing is, None where they differ."""
    own = {name: repeat for name, (repeat, loop) in found.repeats.items() if loop == loops[name]}
    times = {repeat.times for repeat in own.values()}
    if len(times) != 1:
        return None if times else ()
    (count,) = times
    if not isinstance(walked.size, int) or not isinstance(count, int) or walked.size % count:
        return None
    key, value = (
        (walked.key, 0) if "k" in own else (mul(count, walked.key), walked.key),
        (walked.value, 0) if "v" in own else (mul(count, walked.value), walked.value),
    )
    outer = Walked(walked.name, walked.size // count, mul(count, walked.query), key[0], value[0])
    return outer, Walked(walked.name, count, walked.query, key[1], value[1])


def _repeated(found: Gathered, name: str, op: mlir.Op, number: int, shapes: Shapes) -> list[Formula] | None:
    """Strides by loop of ``op`` over what its operand repeats."""
    repeat = read_repeat(op.operands[number], found.members, shapes)
    if repeat is None:
        return None
    dims = [mlir.plain_dim(result) for result in _maps(op)[number].results]
    strides: list[Formula] = [0] * _maps(op)[number].n_dims
    for dim, stride in zip(dims, repeat.strides, strict=True):
        if dim is None or dims.count(dim) != 1:
            return None
        strides[dim] = stride
    loop = dims[repeat.axis]
    if loop is None or loop not in found.dims[op]:  # the width of keys or values, which is no axis of scores
        return None
    found.repeats[name] = repeat, loop
    kind = str(mlir.element_of(repeat.source.type))
    found.operands[name] = Operand(repeat.source, repeat.offset, kind)
    found.checks = (*found.checks, *repeat.checks)
    return strides


def _operand(
    found: Gathered, name: str, op: mlir.Op, number: int, nests: dict[mlir.Op, Nest]
) -> list[Formula] | None:
    """Strides by loop of ``op`` over its operand, or over what that was prepared from."""
    buffer, access = op.operands[number], nests[op].accesses[number]
    made = next((one for one in found.roles.get("prepared", ()) if one.operands[-1] == buffer), None)
    if made is None:
        found.operands[name] = Operand(buffer, access.offset, str(mlir.element_of(buffer.type)))
        return list(access.strides)
    reads = [n for n, one in enumerate(made.operands) if mlir.is_memref(one.type)][:-1]
    source = next((n for n in reads if mlir.is_permutation(_maps(made)[n])), None)
    place = [n for n, one in enumerate(made.operands) if mlir.is_memref(one.type)]
    if source is None or SCALE not in made.attributes or access.offset != 0:
        return None
    given = nests[made].accesses[place.index(source)]
    scale = mlir.float_of(made.attributes[SCALE])
    kind = str(mlir.element_of(made.operands[source].type))
    found.operands[name] = Operand(made.operands[source], given.offset, kind, scale)
    strides: list[Formula] = [0] * len(access.strides)
    for theirs, result in enumerate(_maps(op)[number].results):
        dim = mlir.plain_dim(result)
        if dim is None:
            return None
        strides[dim] = add(strides[dim], given.strides[theirs])
    return strides


def _maps(op: mlir.Op) -> list[mlir.AffineMap]:
    return mlir.indexing_maps(op)


def _name_loops(found: Gathered) -> bool:
    """Which axis of the scores each loop of a member walks, from the buffers that members leave."""
    scores = found.one("scores")
    plain = [mlir.plain_dim(result) for result in _maps(scores)[-1].results]
    if None in plain:
        return False
    found.dims[scores] = {dim: axis for axis, dim in enumerate(plain) if dim is not None}
    known: dict[mlir.Value, list[int | None]] = {scores.operands[-1]: list(range(len(plain)))}
    waiting = [op for op in found.members if op != scores and not _has_role(found, op, "prepared", "tail")]
    progress = True
    while progress:
        progress = False
        for op in list(waiting):
            named = _named(op, known)
            if named is None:
                continue
            found.dims[op] = named
            results = [mlir.plain_dim(result) for result in _maps(op)[-1].results]
            known[op.operands[-1]] = [None if dim is None else named.get(dim) for dim in results]
            waiting.remove(op)
            progress = True
    # What is left computes masks: its loops are named where it is read.
    return all(_has_role(found, op, "before") for op in waiting)


def _has_role(found: Gathered, op: mlir.Op, *roles: str) -> bool:
    return any(op in found.roles.get(role, ()) for role in roles)


def _named(op: mlir.Op, known: dict[mlir.Value, list[int | None]]) -> dict[int, int] | None:
    named: dict[int, int] = {}
    for operand, access in zip(list(op.operands)[:-1], _maps(op), strict=False):
        if operand not in known:
            continue
        for result, axis in zip(access.results, known[operand], strict=True):
            dim = mlir.plain_dim(result)
            if dim is None or axis is None:
                return None
            named[dim] = axis
    return named or None


def _together(found: Gathered) -> bool:
    """Move members to the last of them, if nothing between notices; take what starts their results along."""
    starts: list[mlir.Op] = []
    for role in ("scores", "top", "total", "all", "mixed"):
        for op in found.roles.get(role, ()):
            target = op.operands[-1]
            users = [user for user, _ in mlir.uses(target) if user not in found.members]
            starts += [user for user in users if _writes_only(user, target)]
    every = [*found.members, *starts]
    last = found.members[-1]
    final = last.operands[-1]
    for op in every:
        if not mlir.same_block(op, last):
            return False
        target = op.operands[-1]
        if target != final and not _local(target, every):
            return False
        if target == final and op not in (last, *starts):
            return False
    if not _unnoticed(every, last):
        return False
    found.spared = [
        mlir.definition(member.operands[-1]) for member in found.members if member.operands[-1] != final
    ]
    found.spared = list(dict.fromkeys(found.spared))
    for op in every:
        if op != last:
            op.move_before(last)
    found.members = [op for op in every if op != last] + [last]
    return True


def _writes_only(op: mlir.Op, target: mlir.Value) -> bool:
    if mlir.name_of(op) != "linalg.generic" or len(mlir.operations(mlir.block_of(op))) != 1:
        return False
    return op.operands[-1] == target and not any(mlir.is_memref(one.type) for one in list(op.operands)[:-1])


def _local(buffer: mlir.Value, members: list[mlir.Op]) -> bool:
    """An allocation that members alone touch."""
    owner = mlir.defining(buffer)
    allocated = owner is not None and mlir.name_of(owner) == "memref.alloc"
    return allocated and all(user in members for user, _ in mlir.uses(buffer))


def _unnoticed(members: list[mlir.Op], last: mlir.Op) -> bool:
    """Between a member and the last one nobody writes what it reads, or touches the result."""
    read: set[mlir.Value] = set()
    statements = mlir.operations(last.operation.block)
    for op in statements[: statements.index(last)]:
        if op in members:
            read |= {memory.root_of(operand) for operand in op.operands if mlir.is_memref(operand.type)}
        elif read and _effects(op) and not _harmless(op, read, memory.root_of(last.operands[-1])):
            return False
    return True


def _harmless(op: mlir.Op, read: set[mlir.Value], result: mlir.Value) -> bool:
    """A structured operation that writes nothing in ``read`` and touches no ``result``."""
    if mlir.name_of(op) != "linalg.generic":
        return False
    inputs = mlir.input_count(op)
    written = {memory.root_of(one) for one in list(op.operands)[inputs:]}
    touched = {memory.root_of(operand) for operand in op.operands if mlir.is_memref(operand.type)}
    captured = any(mlir.name_of(inner) == "memref.load" for inner in mlir.walk(op))
    return not (written & read or result in touched or captured)


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


def _reach(found: Gathered) -> Reach | None:
    """The causal mask, where the row's axis is one of the rows: it becomes the outermost of them."""
    mixed = found.one("mixed")
    if REACH not in mixed.attributes:
        return None
    row, shift, limit, added = mlir.string_of(mixed.attributes[REACH]).split()
    first = [axis for axis in found.rows if axis.name == int(row)]
    if not first:
        return None
    found.rows = first + [axis for axis in found.rows if axis not in first]
    return Reach(int(row), int(shift), float(limit), added == "1")
