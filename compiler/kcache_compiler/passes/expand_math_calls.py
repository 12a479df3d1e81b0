"""When calls of the math library are expanded: before fusion, or late where a program has very many."""

from __future__ import annotations

from kcache_compiler.llvm.target import Device
from kcache_compiler.passes.attention.mark import has_marks
from kcache_compiler.passes.expand_math import expand
from kcache_compiler.passes.math.compose import compose
from kcache_compiler.passes.software_fma import emulate_fma
from kcache_compiler.passes.stage import Unit

#: Operations of math functions from which on their calls stay calls until it is known which launches are one.
LATE_MATH = 16384


def expand_math_calls(unit: Unit) -> None:
    """Expand the calls of math functions, unless there are so many that ``expand_late_math`` does it."""
    compose(unit.module, strict=unit.options.numerics == "strict")
    late = not isinstance(unit.target, Device) and not has_marks(unit.module)
    unit.calls_math = _expand(unit, LATE_MATH if late else 0)


def expand_late_math(unit: Unit) -> None:
    """Expand the calls that are left: equal launches are one function by now."""
    if unit.calls_math:
        _expand(unit)
        emulate_fma(unit)


def _expand(unit: Unit, least: int = 0) -> bool:
    scales, fast = "avx512vl" in unit.target.features, unit.options.numerics == "fast"
    return expand(unit.module, scales, fast, least)
