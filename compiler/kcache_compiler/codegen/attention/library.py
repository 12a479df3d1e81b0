"""The functions of attention for a form: packing and tiles of contractions, products, passes, loops."""

from __future__ import annotations

from kcache_compiler.codegen.attention.form import AttentionForm
from kcache_compiler.codegen.attention.passes import finite, scale, settled, shrink, tame
from kcache_compiler.codegen.attention.products import mix, scores
from kcache_compiler.codegen.attention.run import Run
from kcache_compiler.codegen.gemm import pack
from kcache_compiler.codegen.gemm.tile import row_counts, tile


def attention_library(form: AttentionForm) -> str:
    """The text of all functions of ``form``."""
    parts = [pack.consecutive(form), pack.table(form), pack.pack_a(form), pack.pack_b(form)]
    parts += [tile(form, rows) for rows in row_counts(form)]
    parts += [write(form) for write in (scores, mix, scale, shrink, finite, tame, settled)]
    return "\n".join([*parts, Run(form).text()])
