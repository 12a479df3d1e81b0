"""From the bufferized ``main`` to kernels: one launch per fusion group of the CPU's planner.

Launches run in order on one stream, so that each sees the writes of earlier ones. Scalars that ``main``
computes (sizes, offsets of slices) are recomputed in each kernel that uses them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from kcache_compiler.errors import CompileFailed, UnsupportedOp
from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.attention.operands import Gathered, gather
from kcache_compiler.lower.attention.outline import operations_of, taken_by
from kcache_compiler.lower.cpu.buffer_addresses import DynamicSizes
from kcache_compiler.lower.cpu.entry import cast_checks, known_sizes, reject_leftovers
from kcache_compiler.lower.cpu.workspace import plan
from kcache_compiler.lower.gpu.attention.kernel import write_attention
from kcache_compiler.lower.gpu.attention.plan import plan_attention
from kcache_compiler.lower.gpu.attention.split_keys import SplitKeys, split_count, write_combination
from kcache_compiler.lower.gpu.kernel import Kernel, LaunchGeometry, Program, begins_anywhere, loads_behind
from kcache_compiler.lower.gpu.loop_order import arrange
from kcache_compiler.lower.gpu.loops.elementwise import plan_streams, write_streams
from kcache_compiler.lower.gpu.loops.points import write_points
from kcache_compiler.lower.gpu.loops.rows import RowWriter, plan_rows, row_memory, write_rows
from kcache_compiler.lower.gpu.loops.scalar_stores import STORE, Store, hold_numbers, targets, write_store
from kcache_compiler.lower.gpu.loops.sort_scatter import write_marker
from kcache_compiler.lower.gpu.loops.tiled_transpose import turns, write_turns
from kcache_compiler.lower.gpu.loops.vectorized_accesses import LaneWriter
from kcache_compiler.lower.gpu.loops.while_loop import (
    NUMBERS,
    QUIET,
    WHILE,
    WhileLoop,
    WhileLoopKernel,
    captured_values,
    outermost,
    threads_of,
    write_while_loop,
)
from kcache_compiler.lower.gpu.matmul.blocking import Tiles, default_split, plan_tiles, takes_tiles
from kcache_compiler.lower.gpu.matmul.kernel import SplitK, write_split_k_reduction, write_tiles
from kcache_compiler.lower.gpu.operands import offsets_of, operands_of, read_by, root_in, written_by
from kcache_compiler.lower.gpu.tile_sizes import sizes_for
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.elements import element_of
from kcache_compiler.lower.loops.launch import captured_by, names_of
from kcache_compiler.lower.loops.memory import Pointer, root_of
from kcache_compiler.lower.loops.planned_launches import Planned, plan_launches
from kcache_compiler.lower.sort_scatter.marker import is_marker
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bufferization.signature import stated
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula, add, apply, text
from kcache_compiler.types import GpuLaunch, TensorType

#: A planned launch.
_Launch: TypeAlias = Planned | Gathered | WhileLoop | Store


def build_kernels(unit: Unit) -> None:
    """Turn the bufferized ``main`` of ``unit`` into kernels, and record their launches."""
    main = mlir.main_function(unit.module)
    sizes_by_argument, output_sizes, checks = known_sizes(unit, main)
    shapes = Shapes(sizes_by_argument, unit.codes)
    DynamicSizes(main, shapes)  # its casts are not bound: kernels compute sizes themselves
    unit.outputs = tuple(
        TensorType(output.dtype, tuple(map(stated, sizes)))
        for output, sizes in zip(unit.outputs, output_sizes, strict=True)
    )
    checks_found: dict[Check, None] = dict.fromkeys((*checks, *cast_checks(main, shapes)))
    launches = _planned(unit, main, shapes)
    reject_leftovers(main)
    for planned, _ in launches:
        _hold_scalars(main, _last(planned), _scalars(planned))
    workspace = plan(
        main,
        shapes,
        [generics for planned, _ in launches if (generics := _generics(planned))],
        [alloc for planned, _ in launches for alloc in _spared(planned)],
    )
    unit.workspace = workspace.size
    program = Program(unit, main, shapes, dict(workspace.offsets))
    parts_at = apply("roundup", workspace.size, 256)
    for number, (planned, tiles) in enumerate(launches):
        written, launch_checks = _written(program, planned, tiles, f"launch_{number}", parts_at)
        unit.gpu_launches += written
        checks_found |= dict.fromkeys(launch_checks)
    unit.checks = tuple(map(_check, checks_found))
    main.erase()


def _written(
    program: Program, planned: _Launch, tiles: Tiles | None, name: str, parts_at: Formula
) -> tuple[list[GpuLaunch], tuple[Check, ...]]:
    """Write the kernels of a planned launch; partial results of blocks begin at byte ``parts_at``."""
    if isinstance(planned, Gathered):
        return _write_attention(program, planned, name, parts_at)
    if isinstance(planned, WhileLoop):
        launch, checks = _write_around(program, planned, name)
        return [launch], checks
    if isinstance(planned, Store):
        return [_write_store(program, planned, name)], ()
    count = 1 if tiles is None else program.sizes.choices.split or default_split(tiles, program.sizes.gpu)
    if tiles is None or count == 1:
        launch, checks = _write(program, planned, tiles, name)
        return [launch], checks
    parts = SplitK(tiles, count, parts_at)
    _reserve(program.unit, parts)
    launch, checks = _write(program, planned, tiles, name, parts)
    return [launch, _write(program, planned, tiles, f"{name}_sum", parts, ends=True)[0]], checks


def _reserve(unit: Unit, parts: SplitK | SplitKeys) -> None:
    """Extend the workspace by partial results."""
    unit.workspace = apply("max", unit.workspace, add(parts.offset, parts.bytes))


def _generics(launch: _Launch) -> list[mlir.Op]:
    return launch.members if isinstance(launch, Gathered) else launch.generics


def _last(launch: _Launch) -> mlir.Op:
    """The operation at whose position a launch runs."""
    return launch.op if isinstance(launch, WhileLoop | Store) else _generics(launch)[-1]


def _spared(launch: _Launch) -> list[mlir.Op]:
    return (
        [alloc for step in launch.steps for alloc in step.spared]
        if isinstance(launch, WhileLoop)
        else launch.spared
    )


def _planned(unit: Unit, main: mlir.Op, shapes: Shapes) -> list[tuple[_Launch, Tiles | None]]:
    """The launches in order, with the tile plans of contractions."""
    if not isinstance(unit.target, Device):
        raise CompileFailed("launches", f"{unit.target.name} is not a GPU")
    sizes = sizes_for(unit.target.gpu, unit.options.schedule)
    strict = unit.options.numerics == "strict"
    _reject_others(main)
    hold_numbers(main)
    loops = {op: WhileLoop(op, []) for op in outermost(main)}
    loop_of = {inner: loop for op, loop in loops.items() for inner in mlir.named(op, "linalg.generic")}
    stores = [Store(op) for op in mlir.named(main, STORE) if mlir.within(op, main)]
    attentions = [
        attention for attention in gather(unit, main, shapes) if attention.members[0] not in loop_of
    ]
    launches: list[tuple[_Launch, Tiles | None]] = [
        (launch, None) for launch in (*attentions, *loops.values(), *stores)
    ]

    def is_head(generic: mlir.Op) -> bool:
        return generic not in loop_of and takes_tiles(generic, shapes, strict)

    launched = {op for attention in attentions for op in attention.members}
    limits = parse_choices(unit.options.schedule).group_limits
    for planned in plan_launches(main, shapes, is_head, launched=launched, arrange=arrange, limits=limits):
        if planned.generics[0] in loop_of:
            loop_of[planned.generics[0]].steps.append(planned)
            continue
        tiles = plan_tiles(planned, sizes, unit.options.numerics) if planned.parts else None
        if tiles is None:
            launches += [(part, None) for part in planned.parts or [planned]]
            continue
        launches.append((_without_result(planned, tiles), tiles))
    if attentions or loops or stores:
        place = {op: number for number, op in enumerate(mlir.walk(main))}
        launches.sort(key=lambda launch: place[_last(launch[0])])
    return launches


def _without_result(planned: Planned, tiles: Tiles) -> Planned:
    """The group of a contraction, with its result in registers if only the group reads it."""
    fused = planned.fused
    number = fused.segments[tiles.segment][0].nest.accesses[2].buffer
    alloc = mlir.defining(planned.buffers[number])
    accesses = [
        access
        for statement in fused.statements
        for access in statement.nest.accesses
        if access.buffer == number
    ]
    users = [user for user, _ in mlir.uses(planned.buffers[number])]
    starts = tiles.segment > 0 and any(
        access.buffer == number and access.written and not access.reads
        for access in fused.segments[0][0].nest.accesses
    )
    private = all(any(user == generic for generic in planned.generics) for user in users)
    same_element = len({element_of(access) for access in accesses}) == 1
    local = alloc is not None and mlir.name_of(alloc) == "memref.alloc"
    if not (starts and private and same_element and local and len(fused.segments) > tiles.segment + 1):
        return planned
    stored_fused = replace(fused, unstored=fused.unstored | {number})
    return replace(planned, fused=stored_fused, spared=[*planned.spared, alloc])


def _check(check: Check) -> str:
    return f"{text(check.left)} {'==' if check.equal else '<='} {text(check.right)}"


def _reject_others(main: mlir.Op) -> None:
    """Reject operations with side effects that are part of no launch."""
    for op in mlir.operations(mlir.block_of(main)):
        name = mlir.name_of(op)
        if not name.startswith(NUMBERS) and name not in (*QUIET, WHILE, STORE, "memref.load", "func.return"):
            raise UnsupportedOp(name, "in the program itself, on a GPU", mlir.location_of(op))


def _hold_scalars(main: mlir.Op, last: mlir.Op, numbers: list[mlir.Value]) -> None:
    """Keep the buffers of a launch's scalars live until the launch, which loads the scalars again."""
    loads = dict.fromkeys(load for number in numbers for load in loads_behind(number))
    if not loads:
        return
    order = {op: place for place, op in enumerate(mlir.walk(main))}
    for load in loads:
        root = root_of(load.operands[0])
        for op in mlir.named(main, "linalg.generic", STORE):
            between = order[load] < order[op] <= order[last] and (op != last or mlir.name_of(op) != STORE)
            if between and any(root_of(target) == root for target in targets(op)):
                location = mlir.location_of(op)
                raise UnsupportedOp(
                    "memref.load", "a number that changes before it is used, on a GPU", location
                )
        with mlir.after(last):  # extends the live range over the launch, whose results must not overlap it
            mlir.clone(load)


def _scalars(launch: _Launch) -> list[mlir.Value]:
    """The scalars of ``main`` that a launch uses: in bodies, and as offsets of its buffers."""
    if isinstance(launch, WhileLoop):
        return captured_values(launch)
    if isinstance(launch, Store):
        return launch.numbers
    if isinstance(launch, Gathered):
        buffers, scalars = taken_by(launch)
        return [*scalars, *offsets_of(buffers)]
    numbers: list[mlir.Value] = []
    for code in launch.codes.values():
        captured = captured_by(code.generic, code.numbers)
        numbers += [value for value in captured if not mlir.is_memref(value.type)]
        numbers += offsets_of([operand for operand in code.generic.operands if mlir.is_memref(operand.type)])
        numbers += offsets_of([value for value in captured if mlir.is_memref(value.type)])
    return numbers


def _write_attention(
    program: Program, attention: Gathered, name: str, parts_at: Formula
) -> tuple[list[GpuLaunch], tuple[Check, ...]]:
    """Write the kernel of an attention, or that of parts of its keys and that of their combination."""
    plan = plan_attention(attention, program.sizes)
    count, ops = split_count(plan, program.sizes), operations_of(attention)
    kernel, views, scalars = _attention_kernel(program, taken_by(attention), name, count > 1)
    if count == 1:
        form = write_attention(kernel, plan, views, scalars)
        kernel.finish()
        return [_launch(kernel, form, ops)], attention.checks
    parts = SplitKeys(plan, count, parts_at)
    _reserve(program.unit, parts)
    form = write_attention(kernel, plan, views, scalars, parts)
    kernel.finish()
    launches = [_launch(kernel, form, ops)]
    kernel, views, scalars = _attention_kernel(
        program, taken_by(attention, ("tail",), operands=False), f"{name}_sum", False
    )
    form = write_combination(kernel, parts, views, scalars)
    kernel.finish()
    return [*launches, _launch(kernel, form, ("points", *ops[1:]))], attention.checks


def _attention_kernel(
    program: Program, taken: tuple[list[mlir.Value], list[mlir.Value]], name: str, partial: bool
) -> tuple[Kernel, dict[mlir.Value, Pointer], dict[mlir.Value, mlir.Value]]:
    """A kernel with the pointers of its buffers, the result last, and its scalars.

    ``partial``: it does not write the result.
    """
    *buffers, result = taken[0]
    written = set[mlir.Value]() if partial else {root_of(result)}
    read = {root_of(buffer) for buffer in buffers}
    kernel = Kernel(program, name, written, read & written)
    used = buffers if partial else [*buffers, result]
    views: dict[mlir.Value, Pointer] = {buffer: kernel.pointer(buffer) for buffer in used}
    scalars: dict[mlir.Value, mlir.Value] = {number: kernel.scalar(number) for number in taken[1]}
    return kernel, views, scalars


def _write_around(program: Program, while_loop: WhileLoop, name: str) -> tuple[GpuLaunch, tuple[Check, ...]]:
    written = {root for step in while_loop.steps for root in written_by(step)}
    written |= {Store(op).root for op in mlir.named(while_loop.op, STORE)}
    kernel = WhileLoopKernel(program, name, written, threads_of(while_loop, program.sizes.choices.threads))
    form, ops, checks = write_while_loop(kernel, while_loop)
    kernel.finish()
    return _launch(kernel, form, ("while", *ops)), checks


def _write_store(program: Program, store: Store, name: str) -> GpuLaunch:
    kernel = Kernel(program, name, {store.root}, {store.root})
    form = write_store(kernel, store)
    kernel.finish()
    return _launch(kernel, form, (form.name,))


def _launch(kernel: Kernel, form: LaunchGeometry, ops: tuple[str, ...]) -> GpuLaunch:
    grid = (text(form.grid[0]), text(form.grid[1]), text(form.grid[2]))
    return GpuLaunch(
        kernel.name, ops, kernel.name, "", grid, form.block, text(form.shared), tuple(kernel.params)
    )


def _write(
    program: Program,
    planned: Planned,
    tiles: Tiles | None,
    name: str,
    parts: SplitK | None = None,
    ends: bool = False,
) -> tuple[GpuLaunch, tuple[Check, ...]]:
    """Write the launch of a group; with split-K ``parts``, that of the sums, or (``ends``) the rest."""
    written = written_by(planned)
    kernel = Kernel(program, name, written, read_by(planned) & written)
    first = planned.generics[0]
    if is_marker(first):
        form, ops, checks = write_marker(kernel, first)
    else:
        ops = names_of([planned.codes[statement.number].body for statement in planned.fused.statements])
        form, checks = _loops(kernel, planned, tiles, parts, ends), planned.fused.checks
        ops = (form.name, *ops)
    kernel.finish()
    return _launch(kernel, form, ops), checks


def _loops(
    kernel: Kernel, planned: Planned, tiles: Tiles | None, parts: SplitK | None, ends: bool
) -> LaunchGeometry:
    """Write the loops of a planned launch: a matrix product, rows or points. Returns its launch geometry."""
    fused = planned.fused
    operands = operands_of(kernel, planned)
    pointers, views, scalars = operands.pointers, operands.views, operands.scalars
    used = set(pointers)
    rows = plan_rows(fused, planned.codes, kernel.sizes.choices) if tiles is None else None
    for number, size in fused.rows:
        element = mlir.element_type(planned.buffers[number].type)
        pointers[number] = Pointer(row_memory(kernel, rows, number, size), element, [])
    for number, source in fused.instead:
        pointers[number] = pointers[source]
    roots = {number: root_in(planned, number) for number in range(len(planned.buffers))}
    with kernel.before():
        moved = {number for number in used if begins_anywhere(planned.buffers[number])}
        common = (kernel, fused, planned.codes, pointers, views, scalars, moved)
        writer = LaneWriter(*common) if rows is None else RowWriter(*common, rows, roots)
    with kernel.body():
        if parts is not None and ends:
            return replace(write_split_k_reduction(writer, parts), name="points")
        if tiles is not None:
            return replace(write_tiles(writer, tiles, parts), name="contraction")
        if isinstance(writer, RowWriter):
            return replace(write_rows(writer), name="rows")
        turn = turns(writer)
        if turn is not None:
            return replace(write_turns(writer, turn), name="transposition")
        lanes = plan_streams(writer)
        if lanes is None:
            return replace(write_points(writer), name="points")
        return replace(write_streams(writer, lanes), name="stream")
