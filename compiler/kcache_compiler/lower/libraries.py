"""The libraries that most kernels of a target are linked with, compiled before a kernel needs them."""

from __future__ import annotations

from dataclasses import replace

from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.target import Target
from kcache_compiler.lower.attention.blocking import attention_form
from kcache_compiler.lower.gemm.objects import compiled_library, is_cached
from kcache_compiler.schedule.gemm_tiles import Form, form_for
from kcache_compiler.types import LibraryCache


def usual_forms(target: Target) -> tuple[Form, ...]:
    """The forms of products and attention in f32 with default options, most used first."""
    tuning = tuning_for(target.name, "generic")
    products = form_for(target, tuning, ("f32", "f32", "f32"), "f32", exact=False)
    return products, attention_form(products), replace(products, prepacked=True)


def precompile_libraries(target: Target, cache: LibraryCache) -> int:
    """Compile those of ``usual_forms`` that ``cache`` lacks; returns how many these are.

    Each is stored when it is compiled, so that a caller that is ended loses at most one.
    """
    missing = [form for form in usual_forms(target) if not is_cached(form, target, cache)]
    for form in missing:
        compiled_library(form, target, cache)
    return len(missing)
