"""All functions of one form of contraction, as one module text: shared by the contractions of a kernel."""

from __future__ import annotations

import functools

from kcache_compiler.codegen.gemm import pack
from kcache_compiler.codegen.gemm.direct import direct_parts
from kcache_compiler.codegen.gemm.driver import Driver
from kcache_compiler.codegen.gemm.finish import finish
from kcache_compiler.codegen.gemm.shape import Form
from kcache_compiler.codegen.gemm.strip import first_strip, strip
from kcache_compiler.codegen.gemm.tile import row_counts, tile


@functools.singledispatch
def library(form: Form) -> str:
    parts = [
        pack.consecutive(form),
        pack.table(form),
        pack.pack_a(form),
        pack.pack_b(form),
        pack.copy_b(form),
    ]
    parts += [tile(form, rows) for rows in row_counts(form)]
    if form.direct:
        parts += [*direct_parts(form), tile(form, form.rows, packing=True), first_strip(form)]
    parts += [finish(form)] if form.summed else []
    parts += [strip(form), Driver(form).text()]
    return "\n".join(parts)
