"""The table of functions: names, formats, algorithms and accuracy claims."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import UnsupportedOp
from . import algebraic, error_functions, exponential, logarithm, power, trigonometry
from .build import Expr, Function, narrow, record, widen

_FLOATS = ("f32", "f64")
_HALVES = ("f16", "bf16")
_ALL = _HALVES + _FLOATS


@dataclass(frozen=True)
class MathFunction:
    """A function of ``arity`` arguments; ``ulp`` is the claimed distance from the correctly rounded
    result in f32 and f64 (0: exact), for f16 and bf16 it is 1 (0 where the function is exact).
    ``near_zero`` says that within 0.1 of a zero of the function the claim is ``ulp`` of 1.0, absolute."""

    name: str
    arity: int
    dtypes: tuple[str, ...]
    ulp: int
    algorithm: Callable[..., Expr]
    near_zero: bool = False


def _by_f32(algorithm: Callable[..., Expr], dtype: str) -> Callable[..., Expr]:
    def wrapped(*arguments: Expr) -> Expr:
        result = algorithm(*(Expr_to_f32(a) if a.type in _HALVES else a for a in arguments))
        return narrow(result, dtype) if result.type == "f32" else result

    return wrapped


def Expr_to_f32(x: Expr) -> Expr:  # noqa: N802
    from .build import cast

    return cast("extf", x, "f32")


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
    MathFunction("cbrt", 1, _ALL, 2, algebraic.cbrt),
    MathFunction("sqrt", 1, _ALL, 0, algebraic.sqrt),
    MathFunction("rsqrt", 1, _ALL, 2, algebraic.rsqrt),
    MathFunction("pow", 2, _ALL, 4, power.pow_),
    MathFunction("erf", 1, _ALL, 2, error_functions.erf),
    MathFunction("erfc", 1, _ALL, 2, error_functions.erfc),
)
_BY_NAME = {f.name: f for f in _FUNCTIONS}


def functions() -> tuple[MathFunction, ...]:
    """Every function of the library."""
    return _FUNCTIONS


@functools.cache
def function(name: str, dtype: str) -> Function:
    """The recorded scalar function ``name`` for ``dtype``; raises UnsupportedOp for an unknown pair."""
    entry = _BY_NAME.get(name)
    if entry is None or dtype not in entry.dtypes:
        raise UnsupportedOp(f"math.{name}", f"the math library has no {name} of {dtype}")
    algorithm = _by_f32(entry.algorithm, dtype) if dtype in _HALVES else entry.algorithm
    return record(f"{name}_{dtype}", [dtype] * entry.arity, algorithm)


_ = widen
