"""``kcache_run``: builds the entry with the C ABI from the bufferized ``main``.

Each fusion group is replaced by a call of ``kcache_dispatch`` with the task of its launch, which runs on the
calling thread or through the host's ``parallel_for``. After a nonzero error code, the remaining launches are
skipped and the code is returned.
"""

from __future__ import annotations

from dataclasses import replace

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.llvm.emission import initialize
from kcache_compiler.lower.attention.operands import gather
from kcache_compiler.lower.conv.channels_last_match import read_group
from kcache_compiler.lower.conv.padded_copy import with_padded_copies
from kcache_compiler.lower.conv.padding import with_launches_before, with_padding
from kcache_compiler.lower.conv.pooling_match import read_pool
from kcache_compiler.lower.cpu.buffer_addresses import DynamicSizes
from kcache_compiler.lower.cpu.entry_buffers import entry_buffers
from kcache_compiler.lower.cpu.entry_frame import Areas, Frame
from kcache_compiler.lower.cpu.launch_work import with_work
from kcache_compiler.lower.cpu.outline import Repeats, is_tried
from kcache_compiler.lower.cpu.results_in_place import replace_summands, store_in_results
from kcache_compiler.lower.cpu.tasks import alternating, task_text, words_of
from kcache_compiler.lower.cpu.thread_pool import may_use_threads, pool_object
from kcache_compiler.lower.cpu.unit_axes import drop_unit_axes
from kcache_compiler.lower.cpu.workspace import ALIGNMENT, plan
from kcache_compiler.lower.gemm.match import is_contraction, recognize
from kcache_compiler.lower.gemm.outline import pads_in_place, share_panels
from kcache_compiler.lower.gemm.wide_accumulators import widen_sums
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, read_nest
from kcache_compiler.lower.loops.planned_launches import plan_launches
from kcache_compiler.lower.loops.selections import combinings_of
from kcache_compiler.lower.loops.streaming_stores import Results
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bufferization.signature import stated
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.schedule.split_reductions import SHORT, needs_chunks
from kcache_compiler.shapes.formula import Formula, add, apply, mul, text
from kcache_compiler.types import Launch, TensorType

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
#: ``most`` is 1, or if that takes a sixteenth less, as the last of several slices keeps some workers waiting.
#: It is rounded down then: a host gives no more workers than there are slices of the minimum size.
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
  %quotient = llvm.sdiv %more, %slices : i64
  %share = llvm.intr.smax(%quotient, %one) : (i64, i64) -> i64
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
  %one_each = llvm.icmp "eq" %most, %one : i64
  %rounds_down = llvm.or %shorter, %one_each : i1
  %equal = llvm.sdiv %n, %some : i64
  %chosen = llvm.select %rounds_down, %equal, %share : i1, i64
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
    dynamic_sizes = DynamicSizes(main, shapes)
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
    if any(launch.subkernel for launch in outlines):
        shared = apply(
            "roundup", shared, ALIGNMENT
        )  # a subkernel's workspace ends where that of workers begins
    buffers = entry_buffers(unit, outlines)
    shared_at = add(workspace.size, buffers.staged)
    areas = Areas(workspace.size, shared_at, add(shared_at, shared), scratch)
    unit.scratch = scratch
    unit.workspace = add(areas.scratch_at, mul(scratch, "workers")) if scratch else areas.scratch_at
    tasks = {launch.code: launch for launch in outlines if launch.subkernel is None}.values()
    alternate = alternating(launches, shapes)
    texts = [task_text(launch, launch.code in alternate) for launch in tasks]
    mlir.splice(unit.module, "\n".join(texts), *(launch.code for launch in tasks))
    if buffers.abi is not None:
        mlir.splice(unit.module, _VERSION.replace("ABI", str(buffers.abi)))
    reports = parse_choices(unit.options.schedule).reports_launches
    mlir.splice(unit.module, _REPORTING if reports else _SUPPORT)
    for subkernel in {
        launch.subkernel.name: launch.subkernel for launch in outlines if launch.subkernel is not None
    }.values():
        mlir.splice(unit.module, subkernel.declaration)
    if alternate or any(launch.slices for launch in outlines):
        mlir.splice(unit.module, _FEW_SLICES)
    reject_leftovers(main)
    accesses = mlir.among_statements(
        main, "memref.load", "memref.store", "scf.condition"
    )  # collected first, since the entry grows
    words = max((len(words_of(launch)) + 1 for launch in outlines), default=1)
    launched = {generic for generics, _ in launches for generic in generics}
    frame = Frame(unit, main, shapes, areas, words, launched, alternate, buffers)
    frame.bind_sizes(dynamic_sizes)
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
    first = len(unit.inputs) + len(unit.constants) + len(unit.extents)
    results = list(mlir.block_of(main).arguments)[first:]
    repeats = Repeats(unit, shapes, Results.large(main, results, shapes))
    for attention in attentions:
        launches.append((attention.members, repeats.write_attention(attention, len(launches))))
        spared += attention.spared
    launched = {op for attention in attentions for op in attention.members}
    drop_unit_axes(main, launched)
    widen_sums(unit, main, shapes, launched)
    store_in_results(main, results, launched, shapes)
    choices = parse_choices(unit.options.schedule)
    planned_launches = plan_launches(
        main,
        shapes,
        lambda generic: _is_head(unit, generic, shapes),
        unit.target.vector_bytes,
        launched,
        combines=lambda generic: combinings_of(generic, strict),
        limits=replace(choices.group_limits, serial=SHORT),
    )
    if choices.contraction in ("auto", "windows") and choices.group_limits.joins:
        bytes_each = unit.target.vector_bytes
        planned_launches = with_padding(
            planned_launches,
            lambda ops: read_group(ops, shapes, bytes_each) is not None or pads_in_place(unit, ops, shapes),
        )
    if choices.group_limits.joins:
        vector_bytes = unit.target.vector_bytes
        planned_launches = with_launches_before(
            planned_launches, lambda ops: read_pool(ops, shapes, vector_bytes) is not None, [3, 2, 1]
        )
        planned_launches = with_padded_copies(planned_launches, shapes)
    share_panels(
        unit,
        (planned.generics for planned in planned_launches),
        lambda number: is_tried(unit, planned_launches[number], shapes),
        shapes,
    )
    for planned in planned_launches:
        launch_group = repeats.write(planned, len(launches))
        launches += launch_group.launches
        spared += launch_group.spared
    if attentions:
        positions = {op: number for number, op in enumerate(mlir.walk(main))}
        launches.sort(key=lambda launch: positions[launch[0][-1]])
    return launches, [*spared, *replace_summands(main, launches)]


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
        nest, subkernel = member.nest, member.subkernel
        if subkernel is not None:
            unit.launches.append(Launch(member.name, member.ops, subkernel.extent, subkernel.grain))
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
