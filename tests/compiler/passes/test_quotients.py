"""Quotients by what is the same along a row: multiplications, but where their last bit decides."""

from __future__ import annotations

import pytest

from kcache_compiler.compile import lower_until

_X, _T = "tensor<8x64xf32>", "tensor<8xf32>"
#: What is made of the quotient -> whether it may be a product with the inverse.
USES = {
    "log": (f"%y = stablehlo.log %q : {_X}", _X, True),
    "logistic": (f"%y = stablehlo.logistic %q : {_X}", _X, True),
    "erf": (f"%y = chlo.erf %q : {_X} -> {_X}", _X, True),
    "whole": (f"%y = stablehlo.round_nearest_even %q : {_X}", _X, False),
    "few bits": (
        f"%y = stablehlo.convert %q : ({_X}) -> tensor<8x64xf8E4M3FN>",
        "tensor<8x64xf8E4M3FN>",
        False,
    ),
}


#: What divides.
DIVISORS = {
    "shared": f"stablehlo.broadcast_in_dim %t, dims = [0] : ({_T}) -> {_X}",
    "constant": f"stablehlo.constant dense<6.0> : {_X}",
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("divisor", DIVISORS)
def test_a_quotient_stays_one_where_its_last_bit_decides(use: str, divisor: str) -> None:
    line, result, inverted = USES[use]
    text = (
        f"func.func @main(%x: {_X}, %t: {_T}) -> {result} {{\n%b = {DIVISORS[divisor]}\n"
        f"%q = stablehlo.divide %x, %b : {_X}\n{line}\nreturn %y : {result}\n}}"
    )
    with lower_until(text, 2, "x86-64-v3", "launches") as module:
        shared, product = ("fastmath<arcp>" in str(module), "0.166666657" in str(module))
    assert (shared, product) == (inverted and divisor == "shared", inverted and divisor == "constant")
