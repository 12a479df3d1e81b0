"""Sizes that a program computes with integers of arith: rounded as those are, and rejected where they may wrap."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import Canonical, CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.ops.harness.native import run


def _compiled(body: str) -> tuple[Canonical, CompiledKernel]:
    """A program of ``%n``, the size of its argument, which returns ``%r`` ones."""
    text = f"""
func.func @main(%x: tensor<?xi8>) -> tensor<?xi8> {{
  %c0 = arith.constant 0 : index
  %d = tensor.dim %x, %c0 : tensor<?xi8>
  %n = arith.index_cast %d : index to i64
  {body}
  %s = tensor.from_elements %r : tensor<1xi64>
  %one = stablehlo.constant dense<1> : tensor<i8>
  %made = stablehlo.dynamic_broadcast_in_dim %one, %s, dims = [] : (tensor<i8>, tensor<1xi64>) -> tensor<?xi8>
  return %made : tensor<?xi8>
}}
"""
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    isa, options = host_target().isa, CompileOptions(numerics="strict")
    return canonical, compile_spec(canonical.spec_text, canonical.arg_spec, isa, options, lambda _: None)


def test_a_quotient_below_0_is_rounded_down() -> None:
    canonical, kernel = _compiled("""
  %below = arith.constant -7 : i64
  %two = arith.constant 2 : i64
  %ten = arith.constant 10 : i64
  %half = arith.floordivsi %below, %two : i64
  %more = arith.addi %n, %half : i64
  %r = arith.addi %more, %ten : i64""")
    for size in (0, 1, 2, 40):
        (content,) = run(
            kernel, [bytes(size)], [constant.content for constant in canonical.constants], (size,)
        )
        assert len(content) == size - 4 + 10


def test_a_quotient_of_what_is_taken_from_0_is_rounded_down_or_rejected() -> None:
    """As ``-(-n // 2)``, half of a size rounded up."""
    try:
        canonical, kernel = _compiled("""
  %zero = arith.constant 0 : i64
  %two = arith.constant 2 : i64
  %below = arith.subi %zero, %n : i64
  %half = arith.floordivsi %below, %two : i64
  %r = arith.subi %zero, %half : i64""")
    except UnsupportedOp:
        return
    for size in (0, 1, 2, 3, 40, 41):
        (content,) = run(
            kernel, [bytes(size)], [constant.content for constant in canonical.constants], (size,)
        )
        assert len(content) == (size + 1) // 2


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "%t = arith.trunci %n : i64 to i8\n %r = arith.extui %t : i8 to i64", id="cut to eight bits"
        ),
        pytest.param(
            "%t = arith.trunci %n : i64 to i1\n %r = arith.extui %t : i1 to i64", id="whether it is odd"
        ),
        pytest.param(
            "%c = arith.constant 3 : i64\n %b = arith.cmpi slt, %n, %c : i64\n"
            "%e = arith.extsi %b : i1 to i64\n %r = arith.addi %n, %e : i64",
            id="the sign of a truth",
        ),
    ],
)
def test_integers_that_do_not_hold_sizes_are_rejected(body: str) -> None:
    with pytest.raises(UnsupportedOp):
        _compiled(body)
