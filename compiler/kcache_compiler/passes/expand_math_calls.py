"""When calls of the math library are expanded: before fusion, or late where a program has very many."""

from __future__ import annotations

from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.attention.mark import has_marks
from kcache_compiler.passes.expand_math import calls_library, expand
from kcache_compiler.passes.math.compose import compose
from kcache_compiler.passes.software_fma import emulate_fma
from kcache_compiler.types import CompileOptions

#: Operations of math functions from which on their calls stay calls until it is known which launches are one.
LATE_MATH = 16384


def expand_math_calls(module: mlir.Module, target: Target, options: CompileOptions) -> None:
    """Expand the calls of math functions, unless there are so many that ``expand_late_math`` does it."""
    is_cpu = not isinstance(target, Device)
    compose(module, strict=options.numerics == "strict", flush=is_cpu)
    late = is_cpu and not has_marks(module)
    _expand(module, target, options, LATE_MATH if late else 0)


def expand_late_math(module: mlir.Module, target: Target, options: CompileOptions) -> None:
    """Expand the calls that ``expand_math_calls`` left: equal launches are one function by now."""
    if calls_library(module):
        _expand(module, target, options)
        emulate_fma(module, target)


def _expand(module: mlir.Module, target: Target, options: CompileOptions, least: int = 0) -> None:
    scales, fast = "avx512vl" in target.features, options.numerics == "fast"
    expand(module, scales, fast, least)
