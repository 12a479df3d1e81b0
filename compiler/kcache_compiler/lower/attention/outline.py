"""The launch of an attention: stores sizes and strides in a table and calls the library function."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.lower.attention.blocking import AttentionForm, attention_form, scratch
from kcache_compiler.lower.attention.loops import AXIS_WORDS, FACTS, Run
from kcache_compiler.lower.attention.operands import Gathered, Walked, bits
from kcache_compiler.lower.attention.products import mix, scores
from kcache_compiler.lower.attention.row_functions import write_rows
from kcache_compiler.lower.attention.scaling import finite, scale, settled, shrink, tame
from kcache_compiler.lower.gemm.micro_kernel import row_counts, tile
from kcache_compiler.lower.gemm.objects import library
from kcache_compiler.lower.gemm.outline import stored_words, table_of, use_library
from kcache_compiler.lower.gemm.pack_b import pack_b
from kcache_compiler.lower.gemm.packing import consecutive, pack_a, runs, table
from kcache_compiler.lower.loops import memory
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.lower.loops.launch import Outlined, captured_by, slice_function
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.schedule.gemm_tiles import form_for
from kcache_compiler.schedule.loop_nest import SLICE_WORK, Check
from kcache_compiler.shapes.formula import Formula, add, apply, mul, product

#: A masked score this far below a row's maximum has weight 0.
VANISHED = {"f32": -110.0, "f64": -800.0}


@dataclass(frozen=True)
class Cells:
    """The iteration space of the launch: cells of rows of each batch."""

    extent: Formula
    work: Formula
    checks: tuple[Check, ...]

    @property
    def grain(self) -> Formula:
        return apply("ceildiv", 4 * SLICE_WORK, apply("max", 1, self.work))


def outline_attention(unit: Unit, attention: Gathered, name: str, shapes: Shapes) -> Outlined:
    """Append the slice function of an attention to the module."""
    tuning = tuning_for(unit.target.name, unit.options.tuning)
    kinds = (attention.operands["q"].kind, attention.operands["k"].kind, attention.wide)
    blocks = parse_choices(unit.options.schedule).blocks
    tiles = form_for(
        unit.target, tuning, kinds, attention.wide, exact=False, blocks=blocks, vectors_only=True
    )
    form = attention_form(tiles, blocks.keys, blocks.panels)
    extent = mul(attention.size("batch"), apply("ceildiv", attention.size("rows"), form.cell))
    widths = add(attention.size("depth"), attention.size("columns"))
    work = product([form.cell, attention.size("keys"), widths])
    outlined = Outlined(name, Cells(extent, work, attention.checks), operations_of(attention), [], [])
    buffers, scalars = taken_by(attention)
    outlined.buffers += buffers
    outlined.scalars += scalars
    outlined.scratch = scratch(form, attention.size("depth"), attention.size("columns"))
    function, entry = slice_function(unit.module, outlined, {attention.members[-1].operands[-1]})
    weigh, finish = write_rows(unit.module, outlined, attention, form, shapes)
    with mlir.at_end(entry):
        _write(unit, attention, form, outlined, list(entry.arguments), (weigh, finish))
    function.verify()
    use_library(unit, form, 8)
    return outlined


def operations_of(attention: Gathered) -> tuple[str, ...]:
    """The names of the operations of an attention."""
    names = ["attention"]
    for role in ("before", "tail"):
        for op in attention.roles.get(role, ()):
            names += [mlir.name_of(inner) for inner in mlir.operations(mlir.block_of(op))]
    computing = [name for name in names if name not in ("linalg.yield", "linalg.index", "arith.constant")]
    return tuple(dict.fromkeys(computing))


def taken_by(
    attention: Gathered, roles: tuple[str, ...] = ("before", "top", "weights", "tail"), operands: bool = True
) -> tuple[list[mlir.Value], list[mlir.Value]]:
    """The arguments of the launch: buffers (operands, captured buffers, the result last), and scalars.

    Or of a launch that runs only the operations of ``roles``, with or without the ``operands``.
    """
    result = attention.members[-1].operands[-1]
    between = {op.operands[-1] for op in attention.members}
    read = [attention.operands[name].buffer for name in ("q", "k", "v") if operands]
    scalars: list[mlir.Value] = []
    for role in roles:
        for op in attention.roles.get(role, ()):
            numbers = [number for number, operand in enumerate(op.operands) if mlir.is_memref(operand.type)]
            read += [op.operands[number] for number in numbers]
            for value in captured_by(op, numbers):
                if mlir.is_memref(value.type):
                    read.append(value)
                elif value not in scalars:
                    scalars.append(value)
    buffers = list(dict.fromkeys(buffer for buffer in read if buffer not in between))
    return [*buffers, result], scalars


def _write(
    unit: Unit,
    attention: Gathered,
    form: AttentionForm,
    outlined: Outlined,
    arguments: list[mlir.Value],
    names: tuple[str, str],
) -> None:
    dims = arguments[2]
    cache: dict[Formula, mlir.Value] = {}
    table = table_of(unit, _facts(attention), dims, cache)
    pointers: list[mlir.Value] = []
    for name in ("q", "k", "v"):
        operand = attention.operands[name]
        base = arguments[3 + outlined.buffers.index(operand.buffer)]
        element = memory.stored_type(mlir.element_type(operand.buffer.type))
        pointers.append(memory.advance(base, element, memory.emit_formula(operand.offset, dims, cache)))
    closure = stored_words(arguments[2:-1])
    functions = [mlir.address_of_symbol(name) for name in names]
    call_arguments = [*arguments[:2], table, *pointers, arguments[-1], closure, *functions]
    mlir.call_llvm(f"{form.name}_run", call_arguments)
    func.return_([mlir.constant(0, "i32")])


def _facts(attention: Gathered) -> list[Formula]:
    """The words of the table: ``FACTS`` in order, then the axes."""
    reach = attention.reach
    named: dict[str, Formula] = {
        "m": attention.size("rows"),
        "reaches": 0 if reach is None else 1 + reach.added,
        "inner": 1,
        "shift": 0,
        "limit": bits(0.0 if reach is None else reach.limit),
        "vanished": bits(VANISHED[attention.wide]),
        "query_scale": bits(attention.operands["q"].scale),
        "key_scale": bits(attention.operands["k"].scale),
    }
    if reach is not None:
        inner_sizes = [axis.size for axis in attention.rows[1:]]
        named |= {"inner": product(inner_sizes), "shift": reach.shift}
    axes: dict[str, list[Walked]] = {
        "batch": [part for axis in attention.batch for part in axis.parts or (axis,)],
        "m": attention.rows,
        "keys": attention.keys,
        "depth": attention.depth,
        "columns": attention.columns,
    }
    for name, group in axes.items():
        named[f"{name}_axes"] = len(group)
        named.setdefault(name, product([axis.size for axis in group]))
    numbers = [named[name] for name in FACTS]
    for group in axes.values():
        for axis in group:
            words = [axis.size, axis.query, axis.key, axis.value]
            assert len(words) == AXIS_WORDS
            numbers += words
    return numbers


@library.register(AttentionForm)
def attention_library(form: AttentionForm) -> str:
    """The text of all functions of ``form``."""
    parts = [consecutive(form), table(form), runs(form), pack_a(form), pack_b(form)]
    for vectors in (0, 1) if form.narrow else (0,):
        parts += [tile(form, rows, vectors=vectors) for rows in row_counts(form)]
    parts += [write(form) for write in (scores, mix, scale, shrink, finite, tame, settled)]
    return "\n".join([*parts, Run(form).text()])
