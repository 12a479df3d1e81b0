"""Functions of complex numbers as calls of the math library, one for each component of the result.

Tensor operations are lowered before the upstream legalization, scalar operations where it left some: in the
bodies of reductions, and in programs that are linalg already.
"""

from __future__ import annotations

import re

from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import complex as complex_dialect
from kcache_compiler.passes.legalize.elementwise import elementwise, rewrite_elementwise
from kcache_compiler.passes.math import COMPLEX
from kcache_compiler.passes.stage import Sizes

#: operation -> name in the math library
OF_TENSORS = {
    "stablehlo.abs": "abs",
    "stablehlo.atan2": "atan2",
    "stablehlo.cosine": "cos",
    "stablehlo.divide": "divide",
    "stablehlo.exponential": "exp",
    "stablehlo.exponential_minus_one": "expm1",
    "stablehlo.log": "log",
    "stablehlo.log_plus_one": "log1p",
    "stablehlo.logistic": "logistic",
    "stablehlo.power": "pow",
    "stablehlo.rsqrt": "rsqrt",
    "stablehlo.sign": "sign",
    "stablehlo.sine": "sin",
    "stablehlo.sqrt": "sqrt",
    "stablehlo.tan": "tan",
    "stablehlo.tanh": "tanh",
    "chlo.acos": "acos",
    "chlo.acosh": "acosh",
    "chlo.asin": "asin",
    "chlo.asinh": "asinh",
    "chlo.atan": "atan",
    "chlo.atanh": "atanh",
    "chlo.cosh": "cosh",
    "chlo.sinh": "sinh",
    "chlo.tan": "tan",
}
OF_NUMBERS = {"complex.div": "divide"} | {
    f"complex.{name}": name
    for name in (
        *("abs", "atan2", "cos", "exp", "expm1", "log", "log1p", "pow", "rsqrt", "sign", "sin", "sqrt"),
        *("tan", "tanh"),
    )
}
_PARTS = ("f32", "f64")

#: A constant that repeats one complex number: the bindings cannot read such an attribute.
_REPEATED = re.compile(r"dense<\(([^(),]+),([^(),]+)\)>")


def lower_complex_tensors(module: mlir.Module) -> None:
    """Replace every function of tensors of complex numbers by a generic that calls the math library."""
    declare = _Declarations(module)
    for operation in mlir.walk(module):
        name = OF_TENSORS.get(mlir.name_of(operation))
        if name is None or mlir.computes_scalars(operation):
            continue
        part = _part(mlir.element_type(operation.operands[0].type))
        if part is not None:
            declare(name, part)
            with mlir.at_location(operation):
                rewrite_elementwise(operation, lambda scalars, name=name: _call(name, scalars))


def lower_complex_scalars(module: mlir.Module, target: Target, argument_sizes: Sizes) -> None:
    """The same of operations on single numbers; on CPUs tensors that repeat one are filled where sizes are
    open.
    """
    if argument_sizes and not isinstance(target, Device):
        _fill(module)
    declare = _Declarations(module)
    for operation in mlir.named(module, *OF_NUMBERS):
        name, part = OF_NUMBERS[mlir.name_of(operation)], _part(operation.operands[0].type)
        if part is not None:
            declare(name, part)
            with mlir.before(operation), mlir.at_location(operation):
                operation.results[0].replace_all_uses_with(_call(name, list(operation.operands)))
            operation.erase()


def _fill(module: mlir.Module) -> None:
    """Constants whose sizes are those of a sample would be data of that size."""
    for operation in mlir.named(module, "arith.constant"):
        kind = operation.results[0].type
        is_array = mlir.is_tensor(kind) and mlir.rank_of(kind) > 0
        repeated = _REPEATED.search(str(operation)) if is_array else None
        if repeated is None:
            continue
        number, part = mlir.element_type(kind), mlir.element_type(mlir.element_type(kind))
        value = mlir.attribute(f"[{repeated[1]} : {part}, {repeated[2]} : {part}]")
        with mlir.before(operation), mlir.at_location(operation):
            empty = mlir.empty_tensor(kind)
            filled = elementwise(
                [],
                empty,
                lambda _, number=number, value=value: complex_dialect.constant(number, value),
            )
            operation.results[0].replace_all_uses_with(filled)
        operation.erase()


def _part(number: mlir.Type) -> str | None:
    """The type of the parts of a complex number that the math library has functions of."""
    if not str(number).startswith("complex"):
        return None
    part = str(mlir.element_type(number))
    return part if part in _PARTS else None


def _symbol(name: str, which: str, part: str) -> str:
    return f"kcm_complex_{name}_{which}_{part}"


def _call(name: str, numbers: list[mlir.Value]) -> mlir.Value:
    """The function of ``numbers`` at the current point."""
    kind = numbers[0].type
    part = mlir.element_type(kind)
    parts = [half(number) for number in numbers for half in (complex_dialect.re, complex_dialect.im)]
    real = mlir.call(_symbol(name, "re", str(part)), parts, part)
    if COMPLEX[name].real:
        return real
    return complex_dialect.create_(kind, real, mlir.call(_symbol(name, "im", str(part)), parts, part))


class _Declarations:
    """Declares the two functions of each name once."""

    def __init__(self, module: mlir.Module) -> None:
        self._module = module
        self._known = {
            mlir.symbol_of(op) for op in mlir.operations(module.body) if mlir.name_of(op) == "func.func"
        }

    def __call__(self, name: str, part: str) -> None:
        arguments = ", ".join([part] * (2 * COMPLEX[name].arity))
        for which in ("re", "im"):
            symbol = _symbol(name, which, part)
            if symbol not in self._known:
                self._known.add(symbol)
                mlir.splice(self._module, f"func.func private @{symbol}({arguments}) -> {part}")
