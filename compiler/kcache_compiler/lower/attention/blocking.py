"""Block sizes of attention, and the layout of each worker's scratch memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kcache_compiler.schedule.gemm_tiles import BYTES, DEPTH, Form, panel_steps
from kcache_compiler.shapes.formula import Formula, add, apply, mul

#: Blocks of keys in a packed chunk.
CHUNK_BLOCKS = 2
#: Bytes of the vectors of forms that prefetch.
VECTOR_BYTES = 32
#: Cells in a span: its results stay in scratch memory during the loop over keys.
SPAN_CELLS = 32


@dataclass(frozen=True)
class AttentionForm(Form):
    """Element types: queries ``a``, keys and values ``b``, scores, weights and sums ``wide``.

    A cell, the unit of work that is distributed over threads, is ``panels`` tiles of rows.
    """

    panels: int = 4

    @property
    def name(self) -> str:
        return f"attention_{self.a}_{self.b}_{self.wide}"

    @property
    def prefetches(self) -> bool:
        """Whether a batch prefetches what the next one reads; measured only with 256-bit vectors."""
        return self.lanes * BYTES[self.wide] == VECTOR_BYTES and self.fused

    @property
    def cell(self) -> int:
        """Rows of one cell of the grid."""
        return self.rows * self.panels

    @property
    def block(self) -> int:
        """Keys of a tile of scores: the capacity of a packed row of weights."""
        return self.steps // self.columns * self.columns

    @property
    def chunk(self) -> int:
        """Keys of a packed chunk."""
        return self.block * CHUNK_BLOCKS

    @property
    def span(self) -> int:
        """Rows whose results stay in scratch memory during the loop over keys."""
        return self.cell * SPAN_CELLS


def attention_form(form: Form, keys: int = DEPTH, panels: int = 4) -> AttentionForm:
    """The attention form with the register tiles of ``form``, without pairs."""
    scaled_form = AttentionForm(
        form.a,
        form.b,
        form.wide,
        form.wide,
        form.lanes,
        form.rows,
        form.vectors,
        form.width,
        form.fused,
        form.masked,
        pairs=False,
        unroll=form.unroll,
        panels=panels,
    )
    return replace(scaled_form, steps=panel_steps(scaled_form, keys))


def regions(form: AttentionForm, depth: Formula, columns: Formula) -> list[tuple[str, Formula]]:
    """The regions of a worker's scratch memory, as name and bytes.

    ``depth`` is the length of a query, ``columns`` that of a value.
    """
    width = BYTES[form.wide]
    wide = apply("roundup", columns, form.columns)
    pieces = apply("max", 1, apply("ceildiv", depth, form.steps))
    elements: dict[str, Formula] = {
        "keys": mul(form.chunk, depth),
        "values": mul(form.chunk, wide),
        "tile": form.rows * form.row_step,
        "queries": mul(form.rows * form.row_step, pieces),
        "sums": mul(form.span, wide),
        "tops": form.span,
        "totals": form.span,
        "shrinks": form.rows,
    }
    words: dict[str, Formula] = {
        "rows": form.rows,
        "key_places": form.chunk,
        "value_places": form.chunk,
        "query_steps": depth,
        "key_steps": depth,
        "value_columns": columns,
        "finite": CHUNK_BLOCKS,
    }
    sizes = {name: mul(width, count) for name, count in elements.items()}
    sizes |= {name: mul(8, count) for name, count in words.items()}
    return [(name, apply("roundup", size, 64)) for name, size in sizes.items()]


def scratch(form: AttentionForm, depth: Formula, columns: Formula) -> Formula:
    total: Formula = 0
    for _, size in regions(form, depth, columns):
        total = add(total, size)
    return total
