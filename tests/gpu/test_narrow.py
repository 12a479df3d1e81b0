"""What is widened before it is multiplied is read narrow: through the canonical form, against this CPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel
from tests.gpu.harness.programs import narrow_attention
from tests.gpu.harness.run import run_gpu

#: Two products that share an operand, which is computed, rounded and widened; sizes that fit no tile.
SHARED = """
func.func @main(%x: tensor<70x40xbf16>, %y: tensor<70x40xf32>, %a: tensor<40x24xbf16>, %b: tensor<16x40xbf16>)
    -> (tensor<70x24xf32>, tensor<70x16xf32>) {
  %w = stablehlo.convert %x : (tensor<70x40xbf16>) -> tensor<70x40xf32>
  %s = stablehlo.add %w, %y : tensor<70x40xf32>
  %n = stablehlo.convert %s : (tensor<70x40xf32>) -> tensor<70x40xbf16>
  %p = stablehlo.dot_general %n, %a, contracting_dims = [1] x [0]
    : (tensor<70x40xbf16>, tensor<40x24xbf16>) -> tensor<70x24xf32>
  %q = stablehlo.dot_general %n, %b, contracting_dims = [1] x [1]
    : (tensor<70x40xbf16>, tensor<16x40xbf16>) -> tensor<70x16xf32>
  return %p, %q : tensor<70x24xf32>, tensor<70x16xf32>
}
"""


def compiled(text: str, numerics: str, target: str = "sm_90", opened: bool = False) -> CompiledKernel:
    canonical = canonicalize(text.encode(), "stablehlo", numerics)
    arguments = ArgSpec(canonical.symbolic_args) if opened else canonical.arg_spec
    options = CompileOptions(numerics=numerics)
    return compile_spec(canonical.spec_text, arguments, target, options, lambda _: None)


def test_attention_of_a_program_is_one_launch() -> None:
    launches = compiled(narrow_attention(1, 2, 70, 100, 24, "bf16", False), "default").interface.gpu_launches
    assert [launch.ops[0] for launch in launches] == ["attention"]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("numerics", "opened"), [("strict", False), ("default", False), ("default", True)])
def test_products_that_share_a_widened_operand(numerics: str, opened: bool) -> None:
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype("f4") for shape in ((70, 40), (70, 40), (40, 24), (16, 40))]
    arguments = [inputs[0].astype(ml_dtypes.bfloat16), inputs[1]]
    arguments += [array.astype(ml_dtypes.bfloat16) for array in inputs[2:]]
    kernel = compiled(SHARED, numerics, opened=opened)
    assert (b"mma.sync" in kernel.artifacts["ptx"]) == (numerics == "default")
    got = run_gpu(kernel, arguments)
    wanted = Kernel(compiled(SHARED, "strict", host_target().isa))(*arguments)
    for left, other in zip(got, wanted, strict=True):
        if numerics == "strict":
            np.testing.assert_array_equal(left, other)
        else:
            np.testing.assert_allclose(left, other, rtol=0, atol=4e-5)


def test_a_widened_operand_may_be_a_result_as_well() -> None:
    kernel = compiled(
        """func.func @main(%a: tensor<33x40xf16>) -> (tensor<33x33xf32>, tensor<33x40xf32>) {
          %x = stablehlo.convert %a : (tensor<33x40xf16>) -> tensor<33x40xf32>
          %r = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
            : (tensor<33x40xf32>, tensor<33x40xf32>) -> tensor<33x33xf32>
          return %r, %x : tensor<33x33xf32>, tensor<33x40xf32>
        }""",
        "default",
    )
    a = np.random.default_rng(1).standard_normal((33, 40)).astype("f2")
    product, wide = run_gpu(kernel, [a])
    np.testing.assert_array_equal(wide, a.astype("f4"))
    np.testing.assert_allclose(product, a.astype("f8") @ a.astype("f8").T, rtol=0, atol=4e-5)


def test_what_is_rounded_before_a_product_is_rounded_on_both() -> None:
    """Neither leaves out that f32 became bf16: both give the product of the rounded numbers."""
    program = """func.func @main(%a: tensor<70x40xf32>, %b: tensor<40x24xf32>) -> tensor<70x24xf32> {
      %x = stablehlo.convert %a : (tensor<70x40xf32>) -> tensor<70x40xbf16>
      %y = stablehlo.convert %b : (tensor<40x24xf32>) -> tensor<40x24xbf16>
      %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
        : (tensor<70x40xbf16>, tensor<40x24xbf16>) -> tensor<70x24xf32>
      return %r : tensor<70x24xf32>
    }"""
    rng = np.random.default_rng(2)
    arguments = [rng.standard_normal(shape).astype("f4") for shape in ((70, 40), (40, 24))]
    kernel = compiled(program, "default")
    assert b"mma.sync" in kernel.artifacts["ptx"]
    [got] = run_gpu(kernel, arguments)
    [on_cpu] = Kernel(compiled(program, "default", host_target().isa))(*arguments)
    rounded = [argument.astype(ml_dtypes.bfloat16).astype("f8") for argument in arguments]
    exact = rounded[0] @ rounded[1]
    assert np.abs(exact - arguments[0].astype("f8") @ arguments[1]).max() > 1e-3
    np.testing.assert_allclose(on_cpu, exact, rtol=0, atol=4e-5)
    np.testing.assert_allclose(got, exact, rtol=0, atol=4e-5)
