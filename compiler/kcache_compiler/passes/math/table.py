"""The table of functions: names, formats, algorithms and accuracy claims."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.passes.math import (
    basic,
    error_functions,
    exponential,
    gamma,
    logarithm,
    powers,
    special_functions,
    trigonometry,
)
from kcache_compiler.passes.math import builder as build
from kcache_compiler.passes.math.builder import Expr, Function, cast, narrow, record
from kcache_compiler.passes.math.complex import COMPLEX

_FLOATS = ("f32", "f64")
_HALVES = ("f16", "bf16")
_ALL = _HALVES + _FLOATS


_INTEGERS = ("i8", "i16", "i32", "i64")


@dataclass(frozen=True)
class MathFunction:
    """A function of ``arity`` arguments and its claim.

    ``ulp`` is the largest distance, in units of the last place, from the correctly rounded result
    in f32 and f64 (0: exact); with ``near_zero``, within 0.1 of a zero of the function the same
    number of units of 1.0 is enough. f16 and bf16 are computed in f32 and are off by at most 1,
    unless ``native``: then the algorithm works on their bits. ``loops`` do not vectorize.
    """

    name: str
    arity: int
    dtypes: tuple[str, ...]
    ulp: int
    algorithm: Callable[..., Expr]
    near_zero: bool = False
    native: bool = False


def _by_f32(algorithm: Callable[..., Expr], dtype: str) -> Callable[..., Expr]:
    def wrapped(*arguments: Expr) -> Expr:
        result = algorithm(*(cast("extf", a, "f32") if a.type == dtype else a for a in arguments))
        return narrow(result, dtype)

    return wrapped


_FUNCTIONS = (
    MathFunction("exp", 1, _ALL, 2, exponential.exp),
    MathFunction("exp2", 1, _ALL, 2, exponential.exp2),
    MathFunction("expm1", 1, _ALL, 2, exponential.expm1),
    MathFunction("log", 1, _ALL, 2, logarithm.log),
    MathFunction("log2", 1, _ALL, 2, logarithm.log2),
    MathFunction("log10", 1, _ALL, 2, logarithm.log10),
    MathFunction("log1p", 1, _ALL, 2, logarithm.log1p),
    MathFunction("logistic", 1, _ALL, 2, exponential.logistic),
    MathFunction("tanh", 1, _ALL, 2, exponential.tanh),
    MathFunction("sinh", 1, _ALL, 2, exponential.sinh),
    MathFunction("cosh", 1, _ALL, 2, exponential.cosh),
    MathFunction("asinh", 1, _ALL, 2, logarithm.asinh),
    MathFunction("acosh", 1, _ALL, 2, logarithm.acosh),
    MathFunction("atanh", 1, _ALL, 2, logarithm.atanh),
    MathFunction("sin", 1, _ALL, 2, trigonometry.sin),
    MathFunction("cos", 1, _ALL, 2, trigonometry.cos),
    MathFunction("tan", 1, _ALL, 2, trigonometry.tan),
    MathFunction("asin", 1, _ALL, 2, trigonometry.asin),
    MathFunction("acos", 1, _ALL, 2, trigonometry.acos),
    MathFunction("atan", 1, _ALL, 2, trigonometry.atan),
    MathFunction("atan2", 2, _ALL, 2, trigonometry.atan2),
    MathFunction("cbrt", 1, _ALL, 2, powers.cbrt),
    MathFunction("sqrt", 1, _ALL, 0, powers.sqrt),
    MathFunction("rsqrt", 1, _ALL, 2, powers.rsqrt),
    MathFunction("pow", 2, _ALL, 4, powers.pow_),
    MathFunction("erf", 1, _ALL, 2, error_functions.erf),
    MathFunction("erfc", 1, _ALL, 2, error_functions.erfc),
    MathFunction("lgamma", 1, _ALL, 4, gamma.lgamma, near_zero=True),
    MathFunction("digamma", 1, _ALL, 4, gamma.digamma, near_zero=True),
    MathFunction("erf_inv", 1, _ALL, 4, error_functions.erf_inv),
    MathFunction("bessel_i1e", 1, _ALL, 4, special_functions.bessel_i1e),
    MathFunction("zeta", 2, _ALL, 4, special_functions.zeta),
    MathFunction("polygamma", 2, _ALL, 4, special_functions.polygamma),
    MathFunction("rem", 2, _ALL, 0, basic.rem),
    MathFunction("fpowi", 2, _ALL, 4, powers.fpowi),
    MathFunction("ipowi", 2, _INTEGERS, 0, basic.ipowi),
    MathFunction("upowi", 2, _INTEGERS, 0, basic.upowi),
    MathFunction("round", 1, _ALL, 0, basic.round_away),
    MathFunction("roundeven", 1, _ALL, 0, basic.roundeven),
    MathFunction("floor", 1, _ALL, 0, basic.floor),
    MathFunction("ceil", 1, _ALL, 0, basic.ceil),
    MathFunction("trunc", 1, _ALL, 0, build.trunc),
    MathFunction("sign", 1, _ALL, 0, basic.sign),
    MathFunction("absf", 1, _ALL, 0, exponential.absolute, native=True),
    MathFunction("copysign", 2, _ALL, 0, build.copysign, native=True),
    MathFunction("next_after", 2, _ALL, 0, basic.next_after, native=True),
    MathFunction("isfinite", 1, _ALL, 0, basic.isfinite, native=True),
    MathFunction("isinf", 1, _ALL, 0, basic.isinf, native=True),
    MathFunction("isnan", 1, _ALL, 0, basic.isnan, native=True),
    MathFunction("isnormal", 1, _ALL, 0, basic.isnormal, native=True),
    MathFunction("clampf", 3, _ALL, 0, basic.clampf),
    MathFunction("fma", 3, _FLOATS, 0, build.fma),
)
#: What ``compose`` puts in the place of several operations. ``ulp`` of gelu is the claim above -6, that of
#: weights the one above ``VANISHING``.
_COMPOSED = (
    MathFunction("exp_below", 1, ("f32",), 2, exponential.exp_below),
    MathFunction("exp_distance", 1, ("f32",), 2, exponential.exp_distance),
    MathFunction("exp_weight", 1, ("f32",), 2, exponential.exp_weight),
    MathFunction("gelu", 1, ("f32",), 12, error_functions.gelu),
)
#: Powers of StableHLO, which the math dialect has by other algorithms.
_POWERS = (
    MathFunction("ipow", 2, _INTEGERS, 0, basic.ipow),
    MathFunction("upow", 2, _INTEGERS, 0, basic.upow),
)
#: A part of a complex result each, of the parts of the arguments; ``ulp`` is of the result's length.
_COMPLEX = tuple(
    MathFunction(f"complex_{name}_{part}", 2 * each.arity, _FLOATS, 4, each.part(part == "im"))
    for name, each in COMPLEX.items()
    for part in ("re", "im")
)
_BY_NAME = {f.name: f for f in (*_FUNCTIONS, *_COMPOSED, *_POWERS, *_COMPLEX)}


def functions() -> tuple[MathFunction, ...]:
    """Every function of the library."""
    return _FUNCTIONS


@functools.cache
def function(
    name: str, dtype: str, integer: str | None = None, scales: bool = False, fast: bool = False
) -> Function:
    """The recorded scalar function; ``integer`` is the type of fpowi's exponent, the others as in ``record``.

    Raises UnsupportedOp for a pair of name and type that the library does not have.
    """
    entry = _BY_NAME.get(name)
    if entry is None or dtype not in entry.dtypes or (integer is not None) != (name == "fpowi"):
        raise UnsupportedOp(f"math.{name}", f"the math library has no {name} of {dtype}")
    through_f32 = dtype in _HALVES and not entry.native
    algorithm = _by_f32(entry.algorithm, dtype) if through_f32 else entry.algorithm
    arguments = [dtype] * entry.arity
    if integer is not None:
        arguments[1] = integer
    return record(f"{name}_{dtype}", arguments, algorithm, scales, fast)
