"""All functions of one form of contraction, as one module text: shared by the contractions of a kernel."""

from __future__ import annotations

import functools

from kcache_compiler.lower.gemm.driver import Driver
from kcache_compiler.lower.gemm.few_rows import direct_parts
from kcache_compiler.lower.gemm.micro_kernel import row_counts, tile
from kcache_compiler.lower.gemm.pack_a import pack_a
from kcache_compiler.lower.gemm.pack_b import copy_b, pack_b
from kcache_compiler.lower.gemm.packing import consecutive, table
from kcache_compiler.lower.gemm.round_results import finish
from kcache_compiler.lower.gemm.strip import first_strip, strip
from kcache_compiler.schedule.gemm_tiles import Form


@functools.singledispatch
def library(form: Form) -> str:
    parts = [
        consecutive(form),
        table(form),
        pack_a(form),
        pack_b(form),
        copy_b(form),
    ]
    parts += [tile(form, rows) for rows in row_counts(form)]
    if form.direct:
        parts += [*direct_parts(form), tile(form, form.rows, packing=True), first_strip(form)]
    parts += [finish(form)] if form.summed else []
    parts += [strip(form), Driver(form).text()]
    return "\n".join(parts)
