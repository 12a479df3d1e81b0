"""The launch of a contraction: stores sizes and strides in a table and calls the library function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.emission import initialize
from kcache_compiler.lower.conv.padding import Padding, read_padding
from kcache_compiler.lower.gemm.driver import AXIS_WORDS, FACTS
from kcache_compiler.lower.gemm.epilogue import write_epilogue
from kcache_compiler.lower.gemm.in_place.driver import InPlaceDriver
from kcache_compiler.lower.gemm.in_place.match import in_place
from kcache_compiler.lower.gemm.in_place.results import BIAS, ENDS, OTHER, POSITIVE, Ends, read_ends
from kcache_compiler.lower.gemm.match import (
    Contraction,
    is_contraction,
    makes_zero,
    packable,
    prepared_number,
    recognize,
)
from kcache_compiler.lower.gemm.objects import compiled_library
from kcache_compiler.lower.gemm.prepack import prepacked
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Launched, Outlined, captured_by, read_nest, slice_function
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, func, llvm
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.gemm_tiles import FEW_CELLS, Form
from kcache_compiler.schedule.prepared import PackedOperand
from kcache_compiler.shapes.formula import Formula

#: Slices per worker: each packs B, or reads prepacked B, again; the second one balances the load.
SLICES = 2


def outline_contraction(unit: Unit, generics: list[mlir.Op], name: str, shapes: Shapes) -> Outlined | None:
    """The slice function of a contraction with its fill and its epilogue; None for other groups."""
    padding = read_padding(generics)
    parts = _parts(generics if padding is None else generics[2:])
    if parts is None:
        return None
    fills, generic, followers = parts
    recognized = _recognized(unit, generic, padding, shapes)
    if recognized is None or (recognized[0].form.summed and not fills):
        return None
    b = generic.operands[recognized[0].operands[1]]
    strided = recognized[1] is None or not _is_shared(unit, b)  # other strides may make other panels
    spared = write_in_place([*fills, generic], followers, strided=strided)
    recognized = _recognized(unit, generic, padding, shapes)
    if recognized is None:
        raise CompileFailed(
            "launches", "a contraction does not write to the part of a buffer it may write to"
        )
    contraction, packed = recognized
    outlined = _declared(contraction, generic, followers, name)
    outlined.spared, outlined.slices = spared, _slices(contraction)
    if padding is not None:
        others = [buffer for buffer in outlined.buffers if buffer not in (padding.padded, padding.image)]
        outlined.buffers = [padding.image, *others]
        outlined.spared = [*spared, mlir.definition(padding.padded)]
    if packed is not None:
        outlined.packed = outlined.buffers.index(generic.operands[contraction.operands[1]]), packed
    checks = [check for op in followers for check in read_nest(op, shapes)[0].checks]
    outlined.nest = replace(contraction.nest, checks=(*contraction.nest.checks, *checks))
    ends = read_ends(contraction, generic, followers, shapes)
    if ends is not None and fills:
        factors = [*list(generic.operands)[:2], *([] if padding is None else [padding.image])]
        outlined.replaceable = _replaceable(contraction, ends, factors, outlined.buffers)
    function, entry = slice_function(unit.module, outlined, {op.operands[-1] for op in (generic, *followers)})
    epilogue = (
        write_epilogue(unit.module, outlined, contraction.groups, generic, followers, shapes)
        if followers
        else None
    )
    with mlir.at_end(entry):
        image = None if padding is None else padding.image
        _write(unit, contraction, generic, outlined, entry, bool(fills), epilogue, image, ends)
    function.verify()
    use_library(unit, contraction.form, 7)
    return outlined


def _slices(contraction: Contraction) -> int:
    """Slices per worker at most: one if few rows are read in place, as reading B again takes a share of the
    time of a slice that matters.
    """
    m, few = contraction.groups.sizes("m"), FEW_CELLS * contraction.form.rows
    return 1 if contraction.form.in_place and isinstance(m, int) and m <= few else SLICES


def _replaceable(
    contraction: Contraction, ends: Ends, factors: list[mlir.Value], buffers: list[mlir.Value]
) -> tuple[int, int] | None:
    """The numbers of the result and of the summand that it may replace: one that is not among the
    ``factors``, where sums are complete in registers and never left to an epilogue.
    """
    summand, least = ends.operands.get(OTHER), ends.operands.get(POSITIVE)
    depth = contraction.groups.sizes("k")
    complete = isinstance(depth, int) and depth <= contraction.form.depth
    if summand is None or summand in factors or not complete:
        return None
    if least is not None and mlir.is_memref(least.type):
        return None
    return buffers.index(ends.result), buffers.index(summand)


def pads_in_place(unit: Unit, generics: Sequence[mlir.Op], shapes: Shapes) -> bool:
    """Whether the launch of a contraction may include the padding that ``generics`` begin with."""
    padding = read_padding(generics)
    parts = None if padding is None else _parts(generics[2:])
    return parts is not None and _recognized(unit, parts[1], padding, shapes) is not None


def _parts(generics: Sequence[mlir.Op]) -> tuple[list[mlir.Op], mlir.Op, list[mlir.Op]] | None:
    """The fill with zeros, if any, the contraction, and its consumers; None for other operations."""
    heads = [number for number, generic in enumerate(generics) if is_contraction(generic)]
    if len(heads) != 1 or heads[0] > 1:
        return None
    generic, fills, followers = generics[heads[0]], generics[: heads[0]], generics[heads[0] + 1 :]
    if fills and not (fills[0].operands[-1] == generic.operands[2] and makes_zero(fills[0])):
        return None
    return list(fills), generic, list(followers)


def _recognized(
    unit: Unit,
    generic: mlir.Op,
    padding: Padding | None,
    shapes: Shapes,
    packs: Callable[[Unit, mlir.Value], bool] = packable,
) -> tuple[Contraction, PackedOperand | None] | None:
    """The contraction with its ``padding``, and how its B is packed if that is prepacked; None for others."""
    contraction = recognize(unit, generic, shapes, packs)
    if contraction is None or (padding is not None and contraction.operands[0] != 0):
        return None
    contraction, packed = _prepacked(unit, generic, contraction, packs)
    placed = None if packed is None else in_place(contraction, padding, shapes)
    if packed is None or placed is None:
        return (contraction, packed) if padding is None else None
    return placed, replace(packed, form=placed.form)


def share_panels(
    unit: Unit, groups: Iterable[Sequence[mlir.Op]], is_tried: Callable[[int], bool], shapes: Shapes
) -> None:
    """Find the prepared values that several launches, all contractions, read as equal panels.

    ``groups`` are the operations of each launch; ``is_tried``: whether ``outline_contraction`` is tried for
    that of a number. A value that any other operation reads is not packed.
    """
    if unit.prepared is None:
        return
    readers: dict[mlir.Value, list[PackedOperand]] = {}
    for number, generics in enumerate(groups):
        read = _panels(unit, generics, shapes)
        if read is not None and is_tried(number):
            readers.setdefault(read[0], []).append(read[1])
    for value, operands in readers.items():
        number = prepared_number(unit, value)
        uses = len(list(mlir.uses(value)))
        if number is not None and len(set(operands)) == 1 and len(operands) == uses:
            unit.prepared.shared.add(number)


def _panels(
    unit: Unit, generics: Sequence[mlir.Op], shapes: Shapes
) -> tuple[mlir.Value, PackedOperand] | None:
    """The prepared value with several uses whose panels a contraction may read, and how it is packed."""
    padding = read_padding(generics)
    parts = _parts(generics if padding is None else generics[2:])
    if parts is None:
        return None
    fills, generic, _ = parts
    if not any(_is_shared(unit, operand) for operand in generic.operands):
        return None
    recognized = _recognized(unit, generic, padding, shapes, _is_shared)
    if recognized is None or (recognized[0].form.summed and not fills):
        return None
    contraction, packed = recognized
    return None if packed is None else (generic.operands[contraction.operands[1]], packed)


def _is_shared(unit: Unit, value: mlir.Value) -> bool:
    """Whether ``value`` is a prepared value with several uses."""
    return prepared_number(unit, value) is not None and mlir.used_more_than_once(value)


def _prepacked(
    unit: Unit, generic: mlir.Op, contraction: Contraction, packs: Callable[[Unit, mlir.Value], bool]
) -> tuple[Contraction, PackedOperand | None]:
    """The contraction with a packed B where ``packs`` holds of B, and how it is packed."""
    operand = generic.operands[contraction.operands[1]]
    if not packs(unit, operand):
        return contraction, None
    return prepacked(contraction, operand) or (contraction, None)


def use_library(unit: Unit, form: Form, pointers: int) -> None:
    """Declare the library of ``form``, whose entry takes two sizes and ``pointers``.

    If the unit has threads, one of them compiles the library before ``link_objects`` asks for it.
    """
    if form in unit.gemm_forms:
        return
    unit.gemm_forms.append(form)
    if unit.threads is not None:
        initialize()
        unit.threads.submit(compiled_library, form, unit.target, unit.libraries)
    kinds = ", ".join(["i64"] * 2 + ["!llvm.ptr"] * pointers)
    mlir.splice(unit.module, f"llvm.func @{form.name}_run({kinds})")


def _declared(contraction: Contraction, generic: mlir.Op, followers: list[mlir.Op], name: str) -> Outlined:
    """The launch with the buffers and scalars of all its operations as arguments."""
    outlined = declared(contraction.nest, "contraction", generic, followers, name)
    outlined.scratch = contraction.form.scratch
    if contraction.in_place is not None:
        outlined.scratch = contraction.form.packed_bytes + contraction.in_place.scratch
    return outlined


def declared(nest: Launched, kind: str, generic: mlir.Op, followers: list[mlir.Op], name: str) -> Outlined:
    """The launch of ``generic``, a ``kind``, and its epilogue: their buffers and scalars are arguments."""
    buffers: list[mlir.Value] = []
    scalars: list[mlir.Value] = []
    operations: list[str] = [kind]
    for op in (generic, *followers):
        numbers = [number for number, operand in enumerate(op.operands) if mlir.is_memref(operand.type)]
        for value in [op.operands[number] for number in numbers] + captured_by(op, numbers):
            target = buffers if mlir.is_memref(value.type) else scalars
            if value not in target:
                target.append(value)
    for op in followers:
        operations += [mlir.name_of(inner) for inner in mlir.operations(mlir.block_of(op))]
    computing = [op for op in operations if op not in ("linalg.yield", "linalg.index", "arith.constant")]
    return Outlined(name, nest, tuple(dict.fromkeys(computing)), buffers, scalars)


def _write(
    unit: Unit,
    contraction: Contraction,
    generic: mlir.Op,
    outlined: Outlined,
    entry: mlir.Block,
    cleared: bool,
    epilogue: str | None,
    image: mlir.Value | None,
    ends: Ends | None,
) -> None:
    """Write the body of the slice function: a call of ``FORM_run`` of the library of the contraction.

    Its arguments: the slice, a table of sizes and strides (``facts``), the addresses of A, B and C, scratch,
    and the function of the epilogue with its closure, or null.
    """
    arguments = list(entry.arguments)
    dims = arguments[2]
    cache: dict[Formula, mlir.Value] = {}
    facts = _facts(contraction, cleared)
    words: list[mlir.Value] = []
    first = InPlaceDriver.words.index(ENDS[0][0])
    if ends is None:
        table = table_of(unit, facts, dims, cache)
    else:
        words = [memory.emit_formula(fact, dims, cache) for fact in facts]
        words[first : first + len(ENDS)] = _ends_words(ends, outlined, arguments)
        table = stored_words(words)
    pointers: list[mlir.Value] = []
    for operand, offset in zip(contraction.operands, contraction.offsets, strict=True):
        buffer = generic.operands[operand]
        base = arguments[3 + outlined.buffers.index(image if operand == 0 and image is not None else buffer)]
        element = memory.stored_type(mlir.element_type(buffer.type))
        pointers.append(memory.advance(base, element, memory.emit_formula(offset, dims, cache)))
    null = llvm.mlir_zero(memory.pointer_type())
    closure = function = null
    if epilogue is not None:
        closure = stored_words(arguments[2:-1])
        function = mlir.address_of_symbol(epilogue)
    if ends is not None:
        unfinished = arith.cmpi(arith.CmpIPredicate.eq, words[first], mlir.constant(0))
        function = arith.select(unfinished, function, null)
    call_arguments = [*arguments[:2], table, *pointers, arguments[-1], closure, function]
    mlir.call_llvm(f"{contraction.form.name}_run", call_arguments)
    func.return_([mlir.constant(0, "i32")])


def _ends_words(ends: Ends, outlined: Outlined, arguments: list[mlir.Value]) -> list[mlir.Value]:
    """The words of ``ENDS``; no bits if the number in memory that results are at least is not zero."""

    def pointer(bit: int) -> mlir.Value:
        if bit not in ends.operands:
            return llvm.mlir_zero(memory.pointer_type())
        return arguments[3 + outlined.buffers.index(ends.operands[bit])]

    bits = mlir.constant(ends.bits)
    if POSITIVE in ends.operands and mlir.is_memref(ends.operands[POSITIVE].type):
        kind = "i64" if str(mlir.element_type(ends.operands[POSITIVE].type)) == "f64" else "i32"
        least = llvm.load(mlir.type_of(kind), pointer(POSITIVE))
        is_zero = arith.cmpi(arith.CmpIPredicate.eq, least, mlir.constant(0, kind))
        bits = arith.select(is_zero, bits, mlir.constant(0))
    return [bits, pointer(BIAS), pointer(OTHER)]


def table_of(
    unit: Unit, facts: list[Formula], dims: mlir.Value, cache: dict[Formula, mlir.Value]
) -> mlir.Value:
    """The address of an array of ``facts``, eight bytes each: a constant of the module where all are static,
    which takes LLVM no time, else on the stack.
    """
    static = tuple(fact for fact in facts if isinstance(fact, int))
    if len(static) < len(facts):
        return stored_words([memory.emit_formula(fact, dims, cache) for fact in facts])
    name = unit.tables.get(static)
    if name is None:
        name = unit.tables[static] = f"table_{len(unit.tables)}"
        mlir.constant_table(unit.module, name, static)
    return mlir.address_of_symbol(name)


def stored_words(words: list[mlir.Value]) -> mlir.Value:
    """Store ``words`` in an array on the stack, eight bytes each."""
    table = mlir.stack_array(memory.i64(), len(words), 8)
    for number, word in enumerate(words):
        llvm.store(word, memory.advance(table, memory.i64(), mlir.constant(number)))
    return table


def _facts(contraction: Contraction, cleared: bool) -> list[Formula]:
    """The words of the table: ``FACTS`` in order, then the axes."""
    groups = contraction.groups
    ldc: Formula = groups.m[-1].c if groups.m else 0
    named: dict[str, Formula] = {"ldc": ldc, "load": int(not cleared)}
    axes = {"batch": groups.batch, "m": groups.m, "n": groups.n, "k": groups.k}
    for name, group in axes.items():
        named[f"{name}_axes"] = len(group)
        named[name] = groups.sizes(name)
    words = FACTS
    if contraction.in_place is not None:
        words, named = (
            InPlaceDriver.words,
            dict.fromkeys(InPlaceDriver.words, 0) | contraction.in_place.words | named,
        )
    numbers = [named[name] for name in words]
    for group in axes.values():
        for axis in group:
            words = [axis.size, axis.a, axis.b, axis.c]
            assert len(words) == AXIS_WORDS
            numbers += words
    return numbers


def write_in_place(
    heads: Sequence[mlir.Op], followers: Sequence[mlir.Op], strided: bool = False
) -> list[mlir.Op]:
    """Write results in place of sums without later uses; returns the allocations that become unused.

    ``heads`` are the contraction and the fill of its sums. All operations are one launch, which runs
    ``followers`` elementwise, in order, on a part of C. ``strided``: also in parts of larger buffers, whose
    strides are others than those of the sums.
    """
    candidates, spared = [heads[-1].operands[2]], list[mlir.Op]()
    for number, op in enumerate(followers):
        result = op.operands[-1]
        earlier = [*heads, *followers[:number]]
        source = next(
            (candidate for candidate in candidates if _may_replace(candidate, op, earlier, strided)), None
        )
        if source is not None:
            owner = mlir.defining(source)
            assert owner is not None
            source.replace_all_uses_with(result)
            spared.append(owner)
            candidates.remove(source)
        candidates.append(result)
    return spared


def _may_replace(source: mlir.Value, op: mlir.Op, earlier: Sequence[mlir.Op], strided: bool) -> bool:
    """Whether ``op`` is the last use of ``source`` and writes a result of its type elementwise."""
    owner, operands = mlir.defining(source), list(op.operands)
    result = operands[-1]
    if owner is None or mlir.name_of(owner) != "memref.alloc":
        return False
    if source.type != result.type and not (strided and _differ_by_strides(source.type, result.type)):
        return False
    if len(operands) - mlir.input_count(op) != 1 or source not in operands:
        return False
    users = {user for user, _ in mlir.uses(source)}
    if not users <= {op, *earlier} or any(result in list(user.operands) for user in earlier):
        return False
    if operands.count(result) != 1 or list(list(mlir.block_of(op).arguments)[-1].uses):
        return False
    maps = mlir.indexing_maps(op)
    read = [index_map for index_map, operand in zip(maps, operands, strict=True) if operand == source]
    return mlir.is_permutation(maps[-1]) and all(index_map == maps[-1] for index_map in read)


def _differ_by_strides(kind: mlir.Type, other: mlir.Type) -> bool:
    """Whether buffers of both types have the same static axes and elements, and adjacent ones in the last."""
    if not mlir.is_memref(other) or mlir.element_type(kind) != mlir.element_type(other):
        return False
    sizes, strides = mlir.sizes_of(kind), mlir.strides_of(other)[0]
    return None not in sizes and sizes == mlir.sizes_of(other) and None not in strides and strides[-1:] == [1]
