"""Prepacked B: all panels of a bound operand, packed once when the arguments are bound.

``FORM_prepack(facts, from, to)`` packs every panel of every batch. Panels of a block of K are consecutive, as
wide as a tile and as deep as the block; blocks of K follow each other, then batches. The driver of a
prepacked form reads them in place, in the same blocks of K as a driver that packs B itself, so that sums have
the same order. A form that reads rows of A in place also needs to know whether all elements are finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kcache_compiler.lower.gemm.in_place.match import suits_few_rows
from kcache_compiler.lower.gemm.match import (
    Contraction,
    GemmAxis,
    Groups,
    grid,
    is_contiguous,
    panel_elements,
)
from kcache_compiler.lower.loops.memory import stored_name
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form
from kcache_compiler.schedule.prepared import PackedOperand
from kcache_compiler.shapes.formula import product

_POINTER = "!llvm.ptr"
#: Words before the axes in the table of ``FORM_prepack``, and words of an axis: size and stride in elements.
HEADER = ("batches", "n", "k", "batch_axes", "n_axes", "k_axes")
AXIS_WORDS = 2


def prepacked(contraction: Contraction, value: mlir.Value) -> tuple[Contraction, PackedOperand] | None:
    """``contraction`` with a packed B, ``value`` before packing, and how it is packed; None if B is better
    read as it is.
    """
    form, groups = contraction.form, contraction.groups
    elements = panel_elements(groups, form, contraction.offsets[1], value)
    if elements is None:
        return None
    m, packed = groups.sizes("m"), replace(form, prepacked=True)
    if isinstance(m, int) and (
        m < 1 or (_reads_rows(form, groups, m) and not suits_few_rows(packed, groups))
    ):
        return None
    form = packed
    batch = [axis for axis in groups.batch if axis.b != 0]
    n, k = (int(str(groups.sizes(name))) for name in ("n", "k"))
    operand = PackedOperand(form, _descriptor(batch, groups, n, k), elements)
    each = elements // _count(batch)
    strides: list[GemmAxis] = []
    for axis in reversed(groups.batch):
        strides.insert(0, replace(axis, b=each * _count(strides) if batch else 0))
    groups = replace(groups, batch=tuple(strides))
    nest = grid(contraction.nest, groups, form)
    return replace(contraction, form=form, groups=groups, nest=nest), operand


def _reads_rows(form: Form, groups: Groups, m: int) -> bool:
    """Whether a product of ``m`` rows reads B unpacked where its rows are contiguous."""
    return form.direct and m <= form.few * form.rows and is_contiguous(groups)


def _count(axes: Sequence[GemmAxis]) -> int:
    return int(str(product([axis.size for axis in axes])))


def _descriptor(batch: Sequence[GemmAxis], groups: Groups, n: int, k: int) -> tuple[int, ...]:
    """The words of ``facts``, the table that describes B to ``FORM_prepack``: ``HEADER``, then the axes."""
    words = [_count(batch), n, k, len(batch), len(groups.n), len(groups.k)]
    for axis in (*batch, *groups.n, *groups.k):
        words += [int(str(axis.size)), int(str(axis.b))]
    return tuple(words)


def prepack(form: Form) -> str:
    """The text of ``FORM_prepack``."""
    pointers = [(name, _POINTER) for name in ("facts", "from", "to")]
    code = Code(f"{form.name}_prepack", pointers, linkage="external")
    facts = {name: code.load(code.at("%facts", place, "i64")) for place, name in enumerate(HEADER)}
    base, columns = code.stack(1, "i64"), code.stack(form.columns, "i64")
    steps = code.stack(form.depth, "i64")
    axes: dict[str, Name] = {}
    start: Name = code.const(len(HEADER))
    for kind in ("batch", "n", "k"):
        axes[kind] = code.at("%facts", start, "i64")
        start = code.add(start, code.mul(facts[f"{kind}_axes"], AXIS_WORDS))

    def table(place: Name, first: Name, count: Name, kind: str) -> None:
        numbers = (facts[f"{kind}_axes"], code.const(AXIS_WORDS), code.const(1))
        code.call(
            f"{form.name}_table",
            *((place, _POINTER), (first, "i64"), (count, "i64"), (axes[kind], _POINTER)),
            *((number, "i64") for number in numbers),
        )

    blocks, block_depth = k_blocks(code, form, facts["k"])
    padded = code.roundup(facts["n"], form.columns)
    each = code.mul(padded, code.ceildiv(facts["k"], form.group))
    with code.loop(0, facts["batches"]) as batch, code.loop(0, blocks) as block:
        table(base, batch.counter, code.const(1), "batch")
        source = code.at("%from", code.load(base), stored_name(form.b))
        first = code.mul(block.counter, block_depth)
        depth = code.min(code.sub(facts["k"], first), block_depth)
        table(steps, first, depth, "k")
        run = code.op(f"llvm.call @{form.name}_consecutive({steps}, {depth}) : (!llvm.ptr, i64) -> i1")
        offset = code.add(code.mul(batch.counter, each), code.mul(code.div(first, form.group), padded))
        target = code.at("%to", offset, form.packed)
        with code.loop(0, facts["n"], form.columns) as column:
            count = code.min(code.sub(facts["n"], column.counter), form.columns)
            table(columns, column.counter, count, "n")
            panel = code.mul(column.counter, code.ceildiv(depth, form.group))
            code.call(
                f"{form.name}_pack_b",
                *((source, _POINTER), (columns, _POINTER), (steps, _POINTER)),
                *((depth, "i64"), (count, "i64"), (run, "i1")),
                (code.at(target, panel, form.packed), _POINTER),
            )
    if form.in_place:
        _store_finite(code, form, code.mul(facts["batches"], each))
    return code.text()


def _store_finite(code: Code, form: Form, count: Name) -> None:
    """Store the sum of ``count`` packed elements times zero after them: zero, or NaN if one is not finite."""
    width, zero = BYTES[form.packed], code.const("dense<0.0>", form.vector)
    with code.loop(0, count, form.lanes, carried=[(zero, form.vector)]) as loop:
        values = code.load(code.at("%to", loop.counter, form.packed), form.vector, width)
        product = code.op(f"arith.mulf {values}, {zero} : {form.vector}")
        loop.following.append(code.op(f"arith.addf {loop.carried[0]}, {product} : {form.vector}"))
    place = code.at("%to", count, form.packed)
    code.store(loop.results[0], place, form.vector, width)
    with code.loop(0, form.lanes, carried=[(code.const("0.0", form.wide), form.wide)]) as lane:
        value = code.load(code.at(place, lane.counter, form.packed), form.wide, width)
        lane.following.append(code.op(f"arith.addf {lane.carried[0]}, {value} : {form.wide}"))
    code.store(lane.results[0], place, form.wide, width)


def k_blocks(code: Code, form: Form, k: Name) -> tuple[Name, Name]:
    """The number of blocks of K, and the steps of each but the last."""
    blocks = code.max(code.ceildiv(k, form.depth), 1)
    depth = code.ceildiv(k, blocks)
    return blocks, code.roundup(depth, form.group) if form.pairs else depth
