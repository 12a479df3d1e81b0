"""The functions by name, and their parts as functions of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kcache_compiler.passes.math.builder import Expr, narrow, widen
from kcache_compiler.passes.math.complex import exponential as waves
from kcache_compiler.passes.math.complex import inverse, logarithm, roots
from kcache_compiler.passes.math.complex.atan2 import atan2
from kcache_compiler.passes.math.complex.parts import Number

Algorithm = Callable[..., Number]


@dataclass(frozen=True)
class ComplexFunction:
    """A function of ``arity`` complex numbers; ``real``: its result is a real number."""

    name: str
    arity: int
    algorithm: Algorithm
    real: bool = False

    def part(self, imaginary: bool) -> Callable[..., Expr]:
        """One part of the result from the parts of the arguments."""

        def compute(*parts: Expr) -> Expr:
            single = parts[0].type == "f32"
            wide = [widen(part) for part in parts] if single else list(parts)
            numbers = [Number(*pair, single) for pair in zip(wide[::2], wide[1::2], strict=True)]
            result = self.algorithm(*numbers)
            value = result.im if imaginary else result.re
            return narrow(value) if single else value

        return compute


_FUNCTIONS = (
    ComplexFunction("abs", 1, roots.magnitude, real=True),
    ComplexFunction("acos", 1, inverse.acos),
    ComplexFunction("acosh", 1, inverse.acosh),
    ComplexFunction("asin", 1, inverse.asin),
    ComplexFunction("asinh", 1, inverse.asinh),
    ComplexFunction("atan", 1, inverse.atan),
    ComplexFunction("atan2", 2, atan2),
    ComplexFunction("atanh", 1, inverse.atanh),
    ComplexFunction("cos", 1, waves.cos),
    ComplexFunction("cosh", 1, waves.cosh),
    ComplexFunction("divide", 2, roots.divide),
    ComplexFunction("exp", 1, waves.exp),
    ComplexFunction("expm1", 1, waves.expm1),
    ComplexFunction("log", 1, logarithm.log),
    ComplexFunction("log1p", 1, logarithm.log1p),
    ComplexFunction("logistic", 1, waves.logistic),
    ComplexFunction("pow", 2, logarithm.power),
    ComplexFunction("rsqrt", 1, roots.rsqrt),
    ComplexFunction("sign", 1, roots.sign),
    ComplexFunction("sin", 1, waves.sin),
    ComplexFunction("sinh", 1, waves.sinh),
    ComplexFunction("sqrt", 1, roots.sqrt),
    ComplexFunction("tan", 1, waves.tan),
    ComplexFunction("tanh", 1, waves.tanh),
)
#: By name.
COMPLEX = {function.name: function for function in _FUNCTIONS}
