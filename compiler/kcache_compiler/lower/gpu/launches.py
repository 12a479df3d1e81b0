"""From the bufferized ``main`` to kernels: the groups of the CPU's planner, each a launch of its own.

Launches run in order on one stream, so that each sees what those before it wrote. What ``main`` computes
itself (sizes, offsets of slices) each kernel that asks for it computes again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from kcache_compiler.errors import CompileFailed, UnsupportedOp
from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.attention.operands import Gathered, gather
from kcache_compiler.lower.attention.outline import operations_of, taken_by
from kcache_compiler.lower.cpu.buffer_addresses import OpenSizes
from kcache_compiler.lower.cpu.entry import cast_checks, known_sizes, reject_leftovers
from kcache_compiler.lower.cpu.fusion_groups import Planned, plan_launches
from kcache_compiler.lower.cpu.workspace import plan
from kcache_compiler.lower.gpu.attention.kernel import write_attention
from kcache_compiler.lower.gpu.attention.plan import plan_attention
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
from kcache_compiler.lower.gpu.matmul.blocking import Tiles, plan_tiles, takes_tiles
from kcache_compiler.lower.gpu.matmul.kernel import SplitK, write_parts, write_tiles
from kcache_compiler.lower.gpu.operands import offsets_of, operands_of, read_by, root_in, written_by
from kcache_compiler.lower.gpu.tile_sizes import sizes_for
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.elements import element_of
from kcache_compiler.lower.loops.launch import captured_by, names_of
from kcache_compiler.lower.loops.memory import Pointer, root_of
from kcache_compiler.lower.sort_scatter.marker import is_marker
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.signature import stated
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import add, apply, text
from kcache_compiler.types import GpuLaunch, TensorType

#: A launch before it is written.
_Launch: TypeAlias = Planned | Gathered | WhileLoop | Store


def build_kernels(unit: Unit) -> None:
    """Turn the bufferized ``main`` of ``unit`` into kernels, and say how they are launched."""
    main = mlir.main_function(unit.module)
    known, output_sizes, checks = known_sizes(unit, main)
    shapes = Shapes(known, unit.codes)
    OpenSizes(main, shapes)  # its casts of nothing are not bound: kernels compute sizes of their own
    unit.outputs = tuple(
        TensorType(output.dtype, tuple(map(stated, sizes)))
        for output, sizes in zip(unit.outputs, output_sizes, strict=True)
    )
    found: dict[Check, None] = dict.fromkeys((*checks, *cast_checks(main, shapes)))
    launches = _planned(unit, main, shapes)
    reject_leftovers(main)
    for one, _ in launches:
        _hold_scalars(main, _last(one), _scalars(one))
    workspace = plan(
        main,
        shapes,
        [generics for one, _ in launches if (generics := _generics(one))],
        [alloc for one, _ in launches for alloc in _spared(one)],
    )
    unit.workspace = workspace.size
    program = Program(unit, main, shapes, dict(workspace.offsets))
    for number, (one, tiles) in enumerate(launches):
        name = f"launch_{number}"
        parts: SplitK | None = None
        if tiles is not None and program.sizes.choices.split > 1:
            parts = SplitK(tiles, program.sizes.choices.split, apply("roundup", workspace.size, 256))
            unit.workspace = apply("max", unit.workspace, add(parts.offset, parts.bytes))
        if isinstance(one, Gathered):
            launch, needed = _write_attention(program, one, name)
        elif isinstance(one, WhileLoop):
            launch, needed = _write_around(program, one, name)
        elif isinstance(one, Store):
            launch, needed = _write_store(program, one, name), ()
        else:
            launch, needed = _write(program, one, tiles, name, parts)
        unit.gpu_launches.append(launch)
        if parts is not None and isinstance(one, Planned):
            unit.gpu_launches.append(_write(program, one, tiles, f"{name}_sum", parts, ends=True)[0])
        found |= dict.fromkeys(needed)
    unit.checks = tuple(map(_check, found))
    main.erase()


def _generics(one: _Launch) -> list[mlir.Op]:
    return one.members if isinstance(one, Gathered) else one.generics


def _last(one: _Launch) -> mlir.Op:
    """Where a launch stands."""
    return one.op if isinstance(one, WhileLoop | Store) else _generics(one)[-1]


def _spared(one: _Launch) -> list[mlir.Op]:
    return (
        [alloc for step in one.steps for alloc in step.spared] if isinstance(one, WhileLoop) else one.spared
    )


def _planned(unit: Unit, main: mlir.Op, shapes: Shapes) -> list[tuple[_Launch, Tiles | None]]:
    """The launches in order, with the plans of those that are contractions in tiles."""
    if not isinstance(unit.target, Device):
        raise CompileFailed("launches", f"{unit.target.name} is not a GPU")
    sizes = sizes_for(unit.target.gpu, unit.options.schedule)
    strict = unit.options.numerics == "strict"
    _reject_others(main)
    hold_numbers(main)
    loops = {op: WhileLoop(op, []) for op in outermost(main)}
    inside = {inner: loop for op, loop in loops.items() for inner in mlir.named(op, "linalg.generic")}
    stores = [Store(op) for op in mlir.named(main, STORE) if mlir.within(op, main)]
    attentions = [one for one in gather(unit, main, shapes) if one.members[0] not in inside]
    found: list[tuple[_Launch, Tiles | None]] = [
        (one, None) for one in (*attentions, *loops.values(), *stores)
    ]

    def is_head(generic: mlir.Op) -> bool:
        return generic not in inside and takes_tiles(generic, shapes, strict)

    taken = {op for one in attentions for op in one.members}
    limits = parse_choices(unit.options.schedule).group_limits
    for planned in plan_launches(main, shapes, is_head, taken=taken, arrange=arrange, limits=limits):
        if planned.generics[0] in inside:
            inside[planned.generics[0]].steps.append(planned)
            continue
        tiles = plan_tiles(planned, sizes, unit.options.numerics) if planned.parts else None
        if tiles is None:
            found += [(part, None) for part in planned.parts or [planned]]
            continue
        found.append((_without_result(planned, tiles), tiles))
    if attentions or loops or stores:
        place = {op: number for number, op in enumerate(mlir.walk(main))}
        found.sort(key=lambda launch: place[_last(launch[0])])
    return found


def _without_result(planned: Planned, tiles: Tiles) -> Planned:
    """The group of a contraction, whose result stays in registers where only the group reads it."""
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
    alone = all(any(user == generic for generic in planned.generics) for user in users)
    alike = len({element_of(access) for access in accesses}) == 1
    local = alloc is not None and mlir.name_of(alloc) == "memref.alloc"
    if not (starts and alone and alike and local and len(fused.segments) > tiles.segment + 1):
        return planned
    kept = replace(fused, unstored=fused.unstored | {number})
    return replace(planned, fused=kept, spared=[*planned.spared, alloc])


def _check(check: Check) -> str:
    return f"{text(check.left)} {'==' if check.equal else '<='} {text(check.right)}"


def _reject_others(main: mlir.Op) -> None:
    """What has an effect and is part of no launch would be lost."""
    for op in mlir.operations(mlir.block_of(main)):
        name = mlir.name_of(op)
        if not name.startswith(NUMBERS) and name not in (*QUIET, WHILE, STORE, "memref.load", "func.return"):
            raise UnsupportedOp(name, "in the program itself, on a GPU", mlir.location_of(op))


def _hold_scalars(main: mlir.Op, last: mlir.Op, numbers: list[mlir.Value]) -> None:
    """Keep what a launch's numbers are read from until the launch, which reads it again."""
    loads = dict.fromkeys(load for number in numbers for load in loads_behind(number))
    if not loads:
        return
    order = {op: place for place, op in enumerate(mlir.walk(main))}
    for load in loads:
        root = root_of(load.operands[0])
        for op in mlir.named(main, "linalg.generic", STORE):
            between = order[load] < order[op] <= order[last] and (op != last or mlir.name_of(op) != STORE)
            if between and any(root_of(one) == root for one in targets(op)):
                where = mlir.location_of(op)
                raise UnsupportedOp("memref.load", "a number that changes before it is used, on a GPU", where)
        with mlir.after(last):  # it lives through the launch, whose results must not lie there
            mlir.clone(load)


def _scalars(one: _Launch) -> list[mlir.Value]:
    """Numbers of ``main`` that a launch asks for: in bodies, and as offsets of its buffers."""
    if isinstance(one, WhileLoop):
        return captured_values(one)
    if isinstance(one, Store):
        return one.numbers
    if isinstance(one, Gathered):
        buffers, scalars = taken_by(one)
        return [*scalars, *offsets_of(buffers)]
    found: list[mlir.Value] = []
    for code in one.codes.values():
        captured = captured_by(code.generic, code.numbers)
        found += [value for value in captured if not mlir.is_memref(value.type)]
        found += offsets_of([operand for operand in code.generic.operands if mlir.is_memref(operand.type)])
        found += offsets_of([value for value in captured if mlir.is_memref(value.type)])
    return found


def _write_attention(program: Program, found: Gathered, name: str) -> tuple[GpuLaunch, tuple[Check, ...]]:
    buffers, numbers = taken_by(found)
    written = {root_of(buffers[-1])}
    read = {root_of(buffer) for buffer in buffers[:-1]}
    kernel = Kernel(program, name, written, read & written)
    views: dict[mlir.Value, Pointer] = {buffer: kernel.pointer(buffer) for buffer in buffers}
    scalars: dict[mlir.Value, mlir.Value] = {number: kernel.scalar(number) for number in numbers}
    form = write_attention(kernel, plan_attention(found, kernel.sizes), views, scalars)
    kernel.finish()
    return _launch(kernel, form, operations_of(found)), found.checks


def _write_around(program: Program, one: WhileLoop, name: str) -> tuple[GpuLaunch, tuple[Check, ...]]:
    written = {root for step in one.steps for root in written_by(step)}
    written |= {Store(op).root for op in mlir.named(one.op, STORE)}
    kernel = WhileLoopKernel(program, name, written, threads_of(one, program.sizes.choices.threads))
    form, ops, checks = write_while_loop(kernel, one)
    kernel.finish()
    return _launch(kernel, form, ("while", *ops)), checks


def _write_store(program: Program, one: Store, name: str) -> GpuLaunch:
    kernel = Kernel(program, name, {one.root}, {one.root})
    form = write_store(kernel, one)
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
    """A launch of a group; of a contraction in ``parts`` that of its sums, or (``ends``) what follows."""
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
    fused = planned.fused
    found = operands_of(kernel, planned)
    pointers, views, scalars = found.pointers, found.views, found.scalars
    used = set(pointers)
    rows = plan_rows(fused, planned.codes, kernel.sizes.choices) if tiles is None else None
    for number, size in fused.rows:
        element = mlir.element_type(planned.buffers[number].type)
        pointers[number] = Pointer(row_memory(kernel, rows, number, size), element, [])
    for number, other in fused.instead:
        pointers[number] = pointers[other]
    roots = {number: root_in(planned, number) for number in range(len(planned.buffers))}
    with kernel.before():
        moved = {number for number in used if begins_anywhere(planned.buffers[number])}
        common = (kernel, fused, planned.codes, pointers, views, scalars, moved)
        writer = LaneWriter(*common) if rows is None else RowWriter(*common, rows, roots)
    with kernel.body():
        if parts is not None and ends:
            return replace(write_parts(writer, parts), name="points")
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
