"""Float functions: StableHLO and CHLO operations become calls of the math library's functions.

The bodies are put in place by ``kcache_compiler.passes.inline_math_functions`` afterwards.
"""

from __future__ import annotations

import re

from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.elementwise import rewrite_elementwise

#: operation -> name in the math library
FUNCTIONS = {
    "stablehlo.atan2": "atan2",
    "stablehlo.cbrt": "cbrt",
    "stablehlo.cosine": "cos",
    "stablehlo.exponential": "exp",
    "stablehlo.exponential_minus_one": "expm1",
    "stablehlo.log": "log",
    "stablehlo.log_plus_one": "log1p",
    "stablehlo.logistic": "logistic",
    "stablehlo.power": "pow",
    "stablehlo.remainder": "rem",
    "stablehlo.rsqrt": "rsqrt",
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
    "chlo.bessel_i1e": "bessel_i1e",
    "chlo.cosh": "cosh",
    "chlo.digamma": "digamma",
    "chlo.erf": "erf",
    "chlo.erf_inv": "erf_inv",
    "chlo.erfc": "erfc",
    "chlo.lgamma": "lgamma",
    "chlo.next_after": "next_after",
    "chlo.polygamma": "polygamma",
    "chlo.sinh": "sinh",
    "chlo.tan": "tan",
    "chlo.zeta": "zeta",
}
FLOATS = ("f16", "bf16", "f32", "f64")
#: Powers of integers, by signedness.
_POWERS = {"i": "ipow", "ui": "upow"}
_WHOLE = re.compile(r"(u?i)(8|16|32|64)")


def call_math_library(module: mlir.Module, target: Target) -> None:
    """Replace every float function of ``FUNCTIONS``, and for CPUs every integer power, by a generic that
    calls ``@kcm_<name>_<dtype>``.
    """
    declared: set[str] = set()
    for operation in mlir.walk(module):
        function = FUNCTIONS.get(mlir.name_of(operation))
        if function is None or mlir.computes_scalars(operation):
            continue
        dtype = str(mlir.element_type(operation.results[0].type))
        if dtype not in FLOATS:
            result = _WHOLE.fullmatch(dtype)
            if function != "pow" or result is None or isinstance(target, Device):
                continue
            function, dtype = _POWERS[result[1]], f"i{result[2]}"
        name = f"kcm_{function}_{dtype}"
        count = len(operation.operands)
        if name not in declared:
            declared.add(name)
            arguments = ", ".join([dtype] * count)
            mlir.splice(module, f"func.func private @{name}({arguments}) -> {dtype}")
        with mlir.at_location(operation):
            rewrite_elementwise(
                operation, lambda scalars, name=name: mlir.call(name, scalars, scalars[0].type)
            )
