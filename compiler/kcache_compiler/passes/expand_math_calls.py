"""Decides when calls of the math library are inlined: before bufferization, or late if there are very many.

The early pass runs after elementwise fusion and before operations are grouped into launches; the late pass
after equal launches were merged into one function. ``inline_math_functions.py`` inlines.
"""

from __future__ import annotations

from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.attention.mark import has_marks
from kcache_compiler.passes.inline_math_functions import calls_library, inline_math_functions
from kcache_compiler.passes.math.compose import compose
from kcache_compiler.passes.software_fma import emulate_fma
from kcache_compiler.types import CompileOptions

#: Operations that math functions would take together, above which calls are inlined late.
LATE_MATH = 16384


def expand_math_calls(module: mlir.Module, target: Target, options: CompileOptions) -> None:
    """Inline the calls of math functions; those above ``LATE_MATH`` are left to ``expand_late_math``."""
    is_cpu = not isinstance(target, Device)
    shorter = is_cpu and options.numerics == "default" and target.has_fma and not _scales(target)
    compose(module, strict=options.numerics == "strict", flush=is_cpu, shorter=shorter)
    late = is_cpu and not has_marks(module)
    _expand(module, target, options, LATE_MATH if late else 0)


def expand_late_math(module: mlir.Module, target: Target, options: CompileOptions) -> None:
    """Inline the calls that ``expand_math_calls`` left, once ``deduplicate_functions`` merged launches."""
    if calls_library(module):
        _expand(module, target, options)
        emulate_fma(module, target)


def _expand(module: mlir.Module, target: Target, options: CompileOptions, least: int = 0) -> None:
    inline_math_functions(module, _scales(target), options.numerics == "fast", least)


def _scales(target: Target) -> bool:
    """Whether the target multiplies an f32 by a power of two in one instruction."""
    return "avx512vl" in target.features
