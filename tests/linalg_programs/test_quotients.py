"""Integer division in linalg programs: no divisor ends the process, and all others give the quotient."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel

_OPS = ("divsi", "remsi", "floordivsi", "ceildivsi", "divui", "remui", "ceildivui")
_BODY = """linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel"]}
  ins(%a, %b : TENSOR, TENSOR) outs(%e : TENSOR) {
  ^bb0(%x: ELEMENT, %y: ELEMENT, %o: ELEMENT):
    %q = arith.OP %x, %y : ELEMENT
    linalg.yield %q : ELEMENT } -> TENSOR"""


def _text(form: str, bits: int, count: int) -> str:
    lines = [
        "#m = affine_map<(d0) -> (d0)>",
        f"func.func @main(%a: TENSOR, %b: TENSOR) -> ({', '.join('TENSOR' for _ in _OPS)}) {{",
        "%e = tensor.empty() : TENSOR",
        *(f"%{op} = {form.replace('OP', op)}" for op in _OPS),
        f"return {', '.join(f'%{op}' for op in _OPS)} : {', '.join('TENSOR' for _ in _OPS)} }}",
    ]
    return "\n".join(lines).replace("TENSOR", f"tensor<{count}xELEMENT>").replace("ELEMENT", f"i{bits}")


def _expected(op: str, left: int, right: int, bits: int) -> int:
    """By Python; a division that MLIR leaves undefined is one by 1."""
    if op.endswith("ui"):
        left, right = left % (1 << bits), right % (1 << bits)
    if right == 0 or (right == -1 and left == -(1 << bits - 1)):
        right = 1
    toward_zero = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    results = {
        "div": toward_zero,
        "rem": left - toward_zero * right,
        "floordiv": left // right,
        "ceildiv": -(-left // right),
    }
    number = results[op[:-2]]
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@pytest.mark.parametrize("form", ["arith.OP %a, %b : TENSOR", _BODY], ids=["whole", "body"])
@pytest.mark.parametrize("bits", [8, 32])
def test_every_divisor(form: str, bits: int) -> None:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    pairs = list(product([least, least + 1, -3, -1, 0, 1, 2, 7, most - 1, most], repeat=2))
    left, right = np.array(pairs, f"i{bits // 8}").T.copy()
    canonical = canonicalize(_text(form, bits, len(pairs)).encode(), "linalg", "strict")
    kernel = Kernel(
        compile_spec(
            canonical.spec_text,
            canonical.arg_spec,
            host_target().isa,
            CompileOptions("strict"),
            lambda _: None,
        )
    )
    for op, got in zip(_OPS, kernel(left, right), strict=True):
        assert got.tolist() == [_expected(op, a, b, bits) for a, b in pairs], op


def test_a_divisor_that_is_an_element_of_an_argument() -> None:
    text = """func.func @main(%a: tensor<3xi32>, %b: tensor<i32>) -> tensor<3xi32> {
  %one = arith.constant 1 : i32
  %n = tensor.extract %b[] : tensor<i32>
  %q = arith.divsi %one, %n : i32
  %t = tensor.splat %q : tensor<3xi32>
  %r = arith.addi %a, %t : tensor<3xi32>
  return %r : tensor<3xi32> }"""
    canonical = canonicalize(text.encode(), "linalg", "strict")
    kernel = Kernel(
        compile_spec(
            canonical.spec_text,
            canonical.arg_spec,
            host_target().isa,
            CompileOptions("strict"),
            lambda _: None,
        )
    )
    for divisor, quotient in ((0, 1), (1, 1), (-1, -1), (2, 0)):
        (got,) = kernel(np.arange(3, dtype="i4"), np.array(divisor, "i4"))
        assert got.tolist() == [quotient, quotient + 1, quotient + 2]
