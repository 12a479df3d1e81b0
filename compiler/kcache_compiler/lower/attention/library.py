"""The functions of attention for a form: packing and tiles of contractions, products, passes, loops."""

from __future__ import annotations

from kcache_compiler.lower.attention.blocking import AttentionForm
from kcache_compiler.lower.attention.loops import Run
from kcache_compiler.lower.attention.passes import finite, scale, settled, shrink, tame
from kcache_compiler.lower.attention.products import mix, scores
from kcache_compiler.lower.gemm.micro_kernel import row_counts, tile
from kcache_compiler.lower.gemm.pack_a import pack_a
from kcache_compiler.lower.gemm.pack_b import pack_b
from kcache_compiler.lower.gemm.packing import consecutive, table


def attention_library(form: AttentionForm) -> str:
    """The text of all functions of ``form``."""
    parts = [consecutive(form), table(form), pack_a(form), pack_b(form)]
    parts += [tile(form, rows) for rows in row_counts(form)]
    parts += [write(form) for write in (scores, mix, scale, shrink, finite, tame, settled)]
    return "\n".join([*parts, Run(form).text()])
