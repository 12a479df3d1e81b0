"""``kcache_run``: builds the entry with the C ABI from the bufferized ``main``.

Each fusion group is replaced by a call of ``kcache_dispatch`` with the task of its launch, which runs on the
calling thread or through the host's ``parallel_for``. After a nonzero error code, the remaining launches are
skipped and the code is returned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.llvm.emission import initialize
from kcache_compiler.lower.attention.operands import gather
from kcache_compiler.lower.conv.channels_last_match import read_group
from kcache_compiler.lower.conv.padding import with_padding
from kcache_compiler.lower.cpu.buffer_addresses import OpenSizes, address_of, dynamic_address_of
from kcache_compiler.lower.cpu.entry_buffers import EntryBuffers, entry_buffers
from kcache_compiler.lower.cpu.fusion_groups import plan_launches
from kcache_compiler.lower.cpu.launch_work import with_work
from kcache_compiler.lower.cpu.outline import Repeats
from kcache_compiler.lower.cpu.tasks import ALTERNATING_SLICES, alternating, task_text, words_of
from kcache_compiler.lower.cpu.thread_pool import may_use_threads, pool_object
from kcache_compiler.lower.cpu.unit_axes import drop_unit_axes
from kcache_compiler.lower.cpu.workspace import ALIGNMENT, plan
from kcache_compiler.lower.gemm.match import is_contraction, recognize
from kcache_compiler.lower.gemm.outline import pads_in_place
from kcache_compiler.lower.gemm.wide_accumulators import widen_sums
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes, row_major
from kcache_compiler.lower.loops.launch import Outlined, read_nest
from kcache_compiler.lower.loops.memory import emit_formula, i64, pointer_type
from kcache_compiler.lower.loops.selections import combinings_of
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, builtin, func, llvm
from kcache_compiler.passes.signature import stated
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.schedule.split_reductions import needs_chunks
from kcache_compiler.schedule.subkernel import Part
from kcache_compiler.shapes.formula import Formula, add, apply, mul, text
from kcache_compiler.types import Launch, TensorType

#: The error code of a failed runtime check of sizes.
SIZES_DISAGREE = 1

_VERSION = """
llvm.func @kcache_abi() -> i32 {
  %abi = llvm.mlir.constant(ABI : i32) : i32
  llvm.return %abi : i32
}
"""
_SUPPORT = """
llvm.func internal @kcache_dispatch(%host: !llvm.ptr, %code: !llvm.ptr, %n: i64, %grain: i64,
    %task: !llvm.ptr, %closure: !llvm.ptr) attributes {passthrough = ["noinline", "nounwind"]} {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %none = llvm.mlir.constant(0 : i32) : i32
  %null = llvm.mlir.zero : !llvm.ptr
  %before = llvm.load %code : !llvm.ptr -> i32
  %failed = llvm.icmp "ne" %before, %none : i32
  %empty = llvm.icmp "sle" %n, %zero : i64
  %skip = llvm.or %failed, %empty : i1
  llvm.cond_br %skip, ^done, ^threads
^threads:
  %two = llvm.shl %grain, %one : i64
  %small = llvm.icmp "slt" %n, %two : i64
  %alone = llvm.icmp "eq" %host, %null : !llvm.ptr
  %serial = llvm.or %small, %alone : i1
  llvm.cond_br %serial, ^here, ^ask
^ask:
  %at_workers = llvm.getelementptr %host[8] : (!llvm.ptr) -> !llvm.ptr, i8
  %workers = llvm.load %at_workers : !llvm.ptr -> i64
  %at_context = llvm.getelementptr %host[16] : (!llvm.ptr) -> !llvm.ptr, i8
  %context = llvm.load %at_context : !llvm.ptr -> !llvm.ptr
  %at_for = llvm.getelementptr %host[24] : (!llvm.ptr) -> !llvm.ptr, i8
  %for = llvm.load %at_for : !llvm.ptr -> !llvm.ptr
  %single = llvm.icmp "sle" %workers, %one : i64
  %missing = llvm.icmp "eq" %for, %null : !llvm.ptr
  %direct = llvm.or %single, %missing : i1
  llvm.cond_br %direct, ^here, ^spread
^spread:
  %spread = llvm.call %for(%context, %n, %grain, %task, %closure)
    : !llvm.ptr, (!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> i32
  llvm.store %spread, %code : i32, !llvm.ptr
  llvm.br ^done
^here:
  %ran = llvm.call %task(%closure, %zero, %n, %zero) : !llvm.ptr, (!llvm.ptr, i64, i64, i64) -> i32
  llvm.store %ran, %code : i32, !llvm.ptr
  llvm.br ^done
^done:
  llvm.return
}
"""

#: The same with every launch through the host, if there is one.
_REPORTING = _SUPPORT.replace("cond_br %serial,", "cond_br %alone,").replace(
    "cond_br %direct,", "cond_br %missing,"
)

#: The minimum slice size for which every worker of the host gets at most ``most`` slices; one slice each if
#: that takes a sixteenth less, as the last of several slices keeps some workers waiting.
_FEW_SLICES = """
llvm.func internal @kcache_least_slice(%host: !llvm.ptr, %n: i64, %grain: i64, %most: i64) -> i64
    attributes {passthrough = ["noinline", "nounwind"]} {
  %one = llvm.mlir.constant(1 : i64) : i64
  %null = llvm.mlir.zero : !llvm.ptr
  %alone = llvm.icmp "eq" %host, %null : !llvm.ptr
  llvm.cond_br %alone, ^done(%grain : i64), ^share
^share:
  %at_workers = llvm.getelementptr %host[8] : (!llvm.ptr) -> !llvm.ptr, i8
  %workers = llvm.load %at_workers : !llvm.ptr -> i64
  %some = llvm.intr.smax(%workers, %one) : (i64, i64) -> i64
  %slices = llvm.mul %some, %most : i64
  %less = llvm.sub %slices, %one : i64
  %more = llvm.add %n, %less : i64
  %part = llvm.sdiv %more, %slices : i64
  %share = llvm.intr.smax(%part, %one) : (i64, i64) -> i64
  %up = llvm.sub %share, %one : i64
  %rounded = llvm.add %n, %up : i64
  %parts = llvm.sdiv %rounded, %share : i64
  %others = llvm.sub %some, %one : i64
  %waiting = llvm.add %parts, %others : i64
  %turns = llvm.sdiv %waiting, %some : i64
  %several = llvm.mul %turns, %share : i64
  %divided = llvm.add %n, %others : i64
  %single = llvm.sdiv %divided, %some : i64
  %fifteen = llvm.mlir.constant(15 : i64) : i64
  %sixteen = llvm.mlir.constant(16 : i64) : i64
  %long = llvm.mul %several, %fifteen : i64
  %short = llvm.mul %single, %sixteen : i64
  %shorter = llvm.icmp "sle" %short, %long : i64
  %chosen = llvm.select %shorter, %single, %share : i1, i64
  %least = llvm.intr.smax(%chosen, %grain) : (i64, i64) -> i64
  llvm.br ^done(%least : i64)
^done(%found: i64):
  llvm.return %found : i64
}
"""


def build_entry(unit: Unit) -> None:
    """Turn the bufferized ``main`` of ``unit`` into slice functions, their tasks and ``kcache_run``."""
    main = mlir.main_function(unit.module)
    argument_sizes, output_sizes, checks = known_sizes(unit, main)
    shapes = Shapes(argument_sizes, unit.codes)
    open_sizes = OpenSizes(main, shapes)
    unit.outputs = tuple(
        TensorType(output.dtype, tuple(map(stated, sizes)))
        for output, sizes in zip(unit.outputs, output_sizes, strict=True)
    )
    casts = cast_checks(main, shapes)
    launches, spared = _outline(unit, main, shapes)
    outlines = [launch for _, outlined in launches for launch in (outlined, *outlined.after)]
    for generics, outlined in launches:
        _record(unit, outlined, generics, shapes)
    if unit.threads is not None and may_use_threads(unit.launches):
        initialize()
        unit.threads.submit(pool_object, unit.target)
    workspace = plan(main, shapes, [generics for generics, _ in launches], spared, counted=True)
    scratch, shared = (
        _most([launch.scratch for launch in outlines]),
        _most([launch.shared for launch in outlines]),
    )
    if any(launch.part for launch in outlines):
        shared = apply(
            "roundup", shared, ALIGNMENT
        )  # a subkernel's workspace ends where that of workers begins
    buffers = entry_buffers(unit, outlines)
    shared_at = add(workspace.size, buffers.staged)
    areas = _Areas(workspace.size, shared_at, add(shared_at, shared), scratch)
    unit.scratch = scratch
    unit.workspace = add(areas.scratch_at, mul(scratch, "workers")) if scratch else areas.scratch_at
    tasks = {launch.code: launch for launch in outlines if launch.part is None}.values()
    alternate = alternating(launches, shapes)
    texts = [task_text(launch, launch.code in alternate) for launch in tasks]
    mlir.splice(unit.module, "\n".join(texts), *(launch.code for launch in tasks))
    if buffers.abi is not None:
        mlir.splice(unit.module, _VERSION.replace("ABI", str(buffers.abi)))
    reports = parse_choices(unit.options.schedule).reports_launches
    mlir.splice(unit.module, _REPORTING if reports else _SUPPORT)
    for part in {launch.part.name: launch.part for launch in outlines if launch.part is not None}.values():
        mlir.splice(unit.module, part.declaration)
    if alternate or any(launch.slices for launch in outlines):
        mlir.splice(unit.module, _FEW_SLICES)
    reject_leftovers(main)
    accesses = mlir.among_statements(
        main, "memref.load", "memref.store", "scf.condition"
    )  # collected first, since the entry grows
    words = max((len(words_of(launch)) + 1 for launch in outlines), default=1)
    launched = {generic for generics, _ in launches for generic in generics}
    frame = _Frame(unit, main, shapes, areas, words, launched, alternate, buffers)
    frame.bind_sizes(open_sizes)
    for buffer, sizes in argument_sizes.items():
        frame.bind_argument(buffer, sizes)
    frame.require((*checks, *casts))
    for alloc, offset in workspace.offsets:
        frame.bind_allocation(alloc, offset)
    for generics, launch in launches:
        frame.call(generics, launch)
    frame.dead += spared
    conditions = [access for access in accesses if mlir.name_of(access) == "scf.condition"]
    frame.own_accesses([access for access in accesses if mlir.name_of(access) != "scf.condition"])
    frame.end_loops(conditions)
    frame.finish()


def _outline(
    unit: Unit, main: mlir.Op, shapes: Shapes
) -> tuple[list[tuple[list[mlir.Op], Outlined]], list[mlir.Op]]:
    """The launches in order, each with the operations that it computes, and operations that are erased."""
    launches: list[tuple[list[mlir.Op], Outlined]] = []
    strict = unit.options.numerics == "strict"
    spared: list[mlir.Op] = []
    attentions = gather(unit, main, shapes)
    repeats = Repeats(unit, shapes)
    for attention in attentions:
        launches.append((attention.members, repeats.write_attention(attention, len(launches))))
        spared += attention.spared
    launched = {op for attention in attentions for op in attention.members}
    drop_unit_axes(main, launched)
    widen_sums(unit, main, shapes, launched)
    choices = parse_choices(unit.options.schedule)
    planned_launches = plan_launches(
        main,
        shapes,
        lambda generic: _is_head(unit, generic, shapes),
        unit.target.vector_bytes,
        launched,
        combines=lambda generic: combinings_of(generic, strict),
        limits=choices.group_limits,
    )
    if choices.contraction in ("auto", "windows") and choices.group_limits.joins:
        bytes_each = unit.target.vector_bytes
        planned_launches = with_padding(
            planned_launches,
            lambda ops: read_group(ops, shapes, bytes_each) is not None or pads_in_place(unit, ops, shapes),
        )
    for planned in planned_launches:
        launch_group = repeats.write(planned, len(launches))
        launches += launch_group.launches
        spared += launch_group.spared
    if attentions:
        positions = {op: number for number, op in enumerate(mlir.walk(main))}
        launches.sort(key=lambda launch: positions[launch[0][-1]])
    return launches, spared


def _is_head(unit: Unit, generic: mlir.Op, shapes: Shapes) -> bool:
    """Whether ``generic`` is a contraction, except one with few results that the library does not handle."""
    if not is_contraction(generic):
        return False
    return not needs_chunks(read_nest(generic, shapes)[0]) or recognize(unit, generic, shapes) is not None


def known_sizes(
    unit: Unit, main: mlir.Op
) -> tuple[dict[mlir.Value, list[Formula]], list[list[Formula]], tuple[Check, ...]]:
    """The sizes of all arguments and of outputs, and runtime checks, from the values ``main`` returns."""
    arguments = list(mlir.block_of(main).arguments)
    parameters = (*unit.inputs, *unit.constants)
    codes = unit.codes
    stated_dims = unit.given or [kind.dims for kind in parameters]
    sizes_by_argument: dict[mlir.Value, list[Formula]] = {
        argument: list(dims) for argument, dims in zip(arguments, stated_dims, strict=False)
    }
    sizes_by_argument |= {
        argument: [] for argument in arguments[len(parameters) : len(parameters) + len(unit.extents)]
    }
    returned = mlir.last(mlir.block_of(main))
    shapes = Shapes(sizes_by_argument, codes)
    sizes = iter([shapes.formula(operand) for operand in returned.operands])
    outputs: list[list[Formula]] = []
    for argument in arguments[len(sizes_by_argument) :]:
        static = mlir.sizes_of(argument.type)
        outputs.append([next(sizes) if size is None else codes(size) for size in static])
        sizes_by_argument[argument] = outputs[-1]
    checks = [*unit.bounds, *(Check(next(sizes), next(sizes), equal) for equal in unit.size_checks)]
    return sizes_by_argument, outputs, tuple(check for check in checks if not check.holds)


def cast_checks(main: mlir.Op, shapes: Shapes) -> tuple[Check, ...]:
    """Checks that the sizes on both sides of a cast from a dynamic to a static size are equal."""
    checks: dict[Check, None] = {}
    for cast in mlir.named(main, "memref.cast"):
        source, casted = cast.operands[0], mlir.sizes_of(cast.results[0].type)
        if None not in mlir.sizes_of(source.type):
            continue
        for size, result_size in zip(shapes.sizes(source), casted, strict=True):
            check = Check(size, 0 if result_size is None else shapes.codes(result_size), equal=True)
            if result_size is not None and not check.holds:
                checks[check] = None
    return tuple(checks)


def _record(unit: Unit, launch: Outlined, generics: list[mlir.Op], shapes: Shapes) -> None:
    choices = parse_choices(unit.options.schedule)
    for member in (launch, *launch.after):
        nest, part = member.nest, member.part
        if part is not None:
            unit.launches.append(Launch(member.name, member.ops, part.extent, part.grain))
            continue
        grain = choices.slice_of(nest.grain)
        recorded = Launch(member.name, member.ops, text(nest.extent), text(grain))
        if choices.reports_launches:
            computed = generics if member is launch else []
            recorded = with_work(recorded, member, computed, unit, shapes)
        unit.launches.append(recorded)


def reject_leftovers(main: mlir.Op) -> None:
    structured = {"linalg.generic", "linalg.yield", "linalg.index"}
    dialects = ("stablehlo", "chlo", "tensor", "bufferization", "linalg")
    unsupported = {name for name in mlir.names(main) if name.partition(".")[0] in dialects} - structured
    for operation in mlir.walk(main) if unsupported else ():
        if mlir.name_of(operation) in unsupported:
            location = mlir.location_of(operation)
            raise UnsupportedOp(mlir.name_of(operation), "no code is generated for it", location)


def _most(sizes: list[Formula]) -> Formula:
    largest: Formula = 0
    for size in dict.fromkeys(sizes):
        largest = apply("max", largest, size)
    return largest


@dataclass(frozen=True)
class _Areas:
    """The areas after the buffers in the workspace: what the entry stages, shared memory, then ``scratch``
    bytes per worker.
    """

    staged_at: Formula
    shared_at: Formula
    scratch_at: Formula
    scratch: Formula


class _Frame:
    """Builds the entry function: its arguments, its closure and the descriptors of buffers."""

    def __init__(
        self,
        unit: Unit,
        main: mlir.Op,
        shapes: Shapes,
        areas: _Areas,
        words: int,
        launched: Collection[mlir.Op],
        alternate: Collection[str],
        entry: EntryBuffers,
    ) -> None:
        self.areas = areas
        #: Functions of launches that alternate.
        self.alternate = alternate
        self.entry = entry
        #: Operations that are replaced by calls.
        self.launched = launched
        self.extents = dict(enumerate(unit.extents, len(unit.inputs) + len(unit.constants)))
        self.main = main
        self.choices = parse_choices(unit.options.schedule)
        self.shapes = shapes
        self.body = mlir.block_of(main)
        self.old = list(self.body.arguments)
        location = mlir.unknown_location()
        self.pointers = entry.pointers(
            [self.body.add_argument(pointer_type(), location) for _ in range(entry.count)]
        )
        self.dims, self.workspace, self.host = (
            self.pointers.dims,
            self.pointers.workspace,
            self.pointers.host,
        )
        self.cache: dict[Formula, mlir.Value] = {}
        #: Start addresses of buffers and addresses of closure words, shared by all launches.
        self.begins: dict[mlir.Value, mlir.Value] = {}
        self.slots: list[mlir.Value] = []
        self.dead: list[mlir.Op] = []
        self.dispatched = 0
        with mlir.before(mlir.operations(self.body)[0]):
            self.code = self._stack("i32", 1)
            if self.choices.reports_launches:
                #: The number of a launch is the word before its closure.
                self.number = self._stack("i64", words + 1)
                self.closure = memory.advance(self.number, i64(), mlir.constant(1))
            else:
                self.closure = self._stack("i64", words)
            llvm.store(mlir.constant(0, "i32"), self.code)
            self.first = mlir.definition(mlir.constant(0))  # an anchor: code is inserted before it

    def _stack(self, kind: str, count: int) -> mlir.Value:
        return mlir.stack_array(mlir.type_of(kind), count, 8)

    def bind_sizes(self, open_sizes: OpenSizes) -> None:
        open_sizes.bind(self._size)

    def bind_argument(self, buffer: mlir.Value, sizes: list[Formula]) -> None:
        with mlir.before(self.first):
            base = self._base(self.old.index(buffer))
            bound = self._descriptor(base, buffer.type, sizes)
        self.begins[bound] = base
        buffer.replace_all_uses_with(bound)
        self.shapes.rename(buffer, bound)

    def _base(self, position: int) -> mlir.Value:
        """The pointer to argument ``position`` of ``main``: the caller's buffer, or a stored extent."""
        if position in self.extents:
            slot = self._stack("i64", 1)
            llvm.store(self._size(self.extents[position]), slot)
            return slot
        number = position - sum(extent < position for extent in self.extents)
        return self.entry.address(number, self.pointers, self._staging)

    @property
    def _staging(self) -> int:
        """The offset in the workspace of the bytes that the entry uses itself; they are of static size."""
        return self.areas.staged_at if isinstance(self.areas.staged_at, int) else 0

    def bind_allocation(self, alloc: mlir.Op, offset: Formula) -> None:
        buffer = alloc.results[0]
        self.dead.append(alloc)
        with mlir.before(self.first):
            base = memory.advance(self.workspace, mlir.type_of("i8"), self._size(offset))
            if all(user in self.launched for user, _ in mlir.uses(buffer)):
                self.begins[buffer] = base
                return
            bound = self._descriptor(base, buffer.type, self.shapes.sizes(buffer))
        self.begins[bound] = base
        buffer.replace_all_uses_with(bound)
        self.shapes.rename(buffer, bound)

    def _size(self, formula: Formula) -> mlir.Value:
        with mlir.before(self.first):
            return emit_formula(formula, self.dims, self.cache)

    def _descriptor(self, base: mlir.Value, kind: mlir.Type, sizes: list[Formula]) -> mlir.Value:
        """A row-major memref of ``sizes`` at ``base``."""
        rank = len(sizes)
        arrays = f", array<{rank} x i64>, array<{rank} x i64>" if rank else ""
        struct = mlir.type_of(f"!llvm.struct<(ptr, ptr, i64{arrays})>")
        value = llvm.mlir_poison(struct)

        def put(element: mlir.Value, *path: int) -> None:
            nonlocal value
            value = llvm.insertvalue(value, element, path)

        put(base, 0)
        put(base, 1)
        put(self._size(0), 2)
        for axis, (size, stride) in enumerate(zip(sizes, row_major(sizes), strict=True)):
            put(self._size(size), 3, axis)
            put(self._size(stride), 4, axis)
        return builtin.UnrealizedConversionCastOp([kind], [value]).results[0]

    def call(self, generics: list[mlir.Op], launch: Outlined) -> None:
        with mlir.before(generics[-1]):
            for member in (launch, *launch.after):
                self._dispatch(member)
        for generic in generics:
            generic.erase()

    def _enter(self, part: Part, buffers: list[mlir.Value]) -> None:
        self._pass([self._address(self.shapes.current(buffer)) for buffer in buffers])
        workspace = self._area(apply("-", self.areas.scratch_at, part.fixed))
        arguments = [self.host, self.code, self.closure, self.dims, workspace]
        mlir.call_llvm(f"{part.name}_enter", arguments)

    def _dispatch(self, launch: Outlined) -> None:
        if launch.part is not None:
            self._enter(launch.part, launch.buffers)
            return
        words = [self.dims]
        words += [self._address(self.shapes.current(buffer)) for buffer in launch.buffers]
        for scalar in launch.scalars:
            words += memory.pass_scalar(scalar)
        if launch.shared:
            words.append(self._area(self.areas.shared_at))
        if launch.scratch:
            words.append(self._area(self.areas.scratch_at))
            words.append(self._size(self.areas.scratch))
        if launch.code in self.alternate:
            words.append(self._order())
        self._pass(words)
        task = mlir.address_of_symbol(f"{launch.code}_task")
        cache: dict[Formula, mlir.Value] = {}
        extent = emit_formula(launch.nest.extent, self.dims, cache)
        grain = emit_formula(self.choices.slice_of(launch.nest.grain), self.dims, cache)
        slices = ALTERNATING_SLICES if launch.code in self.alternate else launch.slices
        if slices:
            most = mlir.constant(slices)
            slice_arguments = [self.host, extent, grain, most]
            grain = mlir.call_llvm("kcache_least_slice", slice_arguments, "i64")
        self._check(launch.nest.checks, cache)
        if self.choices.reports_launches:
            llvm.store(mlir.constant(self.dispatched), self.number)
        self.dispatched += 1
        arguments = [self.host, self.code, extent, grain, task, self.closure]
        mlir.call_llvm("kcache_dispatch", arguments)

    def _order(self) -> mlir.Value:
        """Whether a launch runs backwards, as 0 or 1: not where it runs for the first time, then in turn."""
        with mlir.before(self.first):
            slot = self._stack("i64", 1)
            llvm.store(mlir.constant(0), slot)
        order = llvm.load(i64(), slot)
        llvm.store(arith.subi(mlir.constant(1), order), slot)
        return order

    def _area(self, offset: Formula) -> mlir.Value:
        return memory.advance(self.workspace, mlir.type_of("i8"), self._size(offset))

    def _pass(self, words: list[mlir.Value]) -> None:
        """Store the words of the closure at the insertion point."""
        with mlir.before(self.first):
            while len(self.slots) < len(words):
                self.slots.append(memory.advance(self.closure, i64(), mlir.constant(len(self.slots))))
        for word, slot in zip(words, self.slots, strict=False):
            llvm.store(word, slot)

    def _address(self, buffer: mlir.Value) -> mlir.Value:
        """The start address of a buffer, computed once, directly after its definition if sizes are static."""
        if self.shapes.codes:
            return dynamic_address_of(buffer, self.shapes, self._size, self.begins)
        if buffer not in self.begins:
            owner = mlir.defining(buffer)
            if owner is None:
                return address_of(buffer)
            with mlir.after(owner):
                self.begins[buffer] = address_of(buffer)
        return self.begins[buffer]

    def own_accesses(self, accesses: list[mlir.Op]) -> None:
        """Rewrite loads and stores of ``main`` to the addressing of launches: i1 elements are bytes."""
        for access in accesses:
            buffer = access.operands[1 if mlir.name_of(access) == "memref.store" else 0]
            if self.shapes.codes or str(mlir.element_type(buffer.type)) == "i1":
                with mlir.before(access):
                    pointer = memory.Pointer(
                        self._address(buffer),
                        mlir.element_type(buffer.type),
                        [self._step(stride) for stride in self.shapes.strides(buffer)],
                    )
                    _access(access, pointer)
                access.erase()

    def _step(self, stride: Formula) -> mlir.Value:
        if not isinstance(stride, int) and not self.shapes.codes:
            raise UnsupportedOp("memref.load", "a boolean at a dynamic stride")
        return mlir.constant(stride) if isinstance(stride, int) else self._size(stride)

    def require(self, checks: tuple[Check, ...]) -> None:
        """Set the error code before the first launch if ``checks`` do not hold."""
        with mlir.before(self.first):
            self._check(checks, {})

    def _check(self, checks: tuple[Check, ...], cache: dict[Formula, mlir.Value]) -> None:
        """Set the error code if a size is not as a launch requires; the dispatch then skips the launch."""
        for check in checks:
            lhs, rhs = (emit_formula(side, self.dims, cache) for side in (check.left, check.right))
            predicate = arith.CmpIPredicate.ne if check.equal else arith.CmpIPredicate.sgt
            wrong = arith.cmpi(predicate, lhs, rhs)
            old_code = llvm.load(mlir.type_of("i32"), self.code)
            failed = mlir.constant(SIZES_DISAGREE, "i32")
            code = arith.select(wrong, failed, old_code)
            llvm.store(code, self.code)

    def end_loops(self, conditions: list[mlir.Op]) -> None:
        """Exit loops after an error, since the values of their conditions are no longer computed."""
        for condition in conditions:
            with mlir.before(condition):
                code = llvm.load(mlir.type_of("i32"), self.code)
                succeeded = arith.cmpi(arith.CmpIPredicate.eq, code, mlir.constant(0, "i32"))
                condition.operands[0] = arith.andi(condition.operands[0], succeeded)

    def finish(self) -> None:
        returned = mlir.last(self.body)
        with mlir.before(returned):
            self.entry.finish(self.pointers, self._staging)
            func.return_([llvm.load(mlir.type_of("i32"), self.code)])
        returned.erase()
        for alloc in self.dead:
            for user, _ in list(mlir.uses(alloc.results[0])):
                if mlir.name_of(user) in memory.VIEWS and not list(user.results[0].uses):
                    user.erase()
            alloc.erase()
        for _ in self.old:
            self.body.erase_argument(0)
        kind = mlir.function_type([pointer_type()] * self.entry.count, [mlir.type_of("i32")])
        self.main.attributes["function_type"] = mlir.type_attr(kind)
        self.main.attributes["sym_name"] = mlir.string_attr(self.entry.name)
        self.main.attributes["sym_visibility"] = mlir.string_attr("public")


def _access(access: mlir.Op, pointer: memory.Pointer) -> None:
    """Replace a load or store by one through ``pointer`` at the insertion point."""
    writes = mlir.name_of(access) == "memref.store"
    offset = mlir.constant(0)
    for index, step in zip(list(access.operands)[2 if writes else 1 :], pointer.steps, strict=True):
        position = arith.index_cast(i64(), index)
        offset = memory.plus(offset, memory.times(position, step))
    if writes:
        memory.store(pointer, offset, access.operands[0])
    else:
        access.results[0].replace_all_uses_with(memory.load(pointer, offset))
