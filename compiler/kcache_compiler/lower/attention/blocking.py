"""Sizes of the blocks in which attention is computed, and where each worker keeps them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kcache_compiler.schedule.gemm_tiles import BYTES, DEPTH, Form, panel_steps
from kcache_compiler.shapes.formula import Formula, add, apply, mul

#: Blocks of keys that are packed at a time.
CHUNK_BLOCKS = 2
#: Cells of rows whose results are kept while the keys go by.
SPAN_CELLS = 5


@dataclass(frozen=True)
class AttentionForm(Form):
    """Queries are ``a``, keys and values ``b``; scores, weights and sums are ``wide``.

    ``panels`` tiles of rows are one cell of the grid that is split over threads.
    """

    panels: int = 4

    @property
    def name(self) -> str:
        return f"attention_{self.a}_{self.b}_{self.wide}"

    @property
    def cell(self) -> int:
        """Rows of one cell of the grid."""
        return self.rows * self.panels

    @property
    def block(self) -> int:
        """Keys whose scores are a tile: as many as the weights of a packed row hold."""
        return self.steps // self.columns * self.columns

    @property
    def chunk(self) -> int:
        """Keys that are packed at a time."""
        return self.block * CHUNK_BLOCKS

    @property
    def span(self) -> int:
        """Rows whose results are kept while the keys go by."""
        return self.cell * SPAN_CELLS


def attention_form(form: Form, keys: int = DEPTH, panels: int = 4) -> AttentionForm:
    """The same register tiles, and no pairs."""
    found = AttentionForm(
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
        panels=panels,
    )
    return replace(found, steps=panel_steps(found, keys))


def regions(form: AttentionForm, depth: Formula, columns: Formula) -> list[tuple[str, Formula]]:
    """Scratch of a worker by name and bytes; ``depth`` of a query, ``columns`` of a value."""
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
