"""The entry function computes addresses, and no descriptors of buffers that only launches use."""

from __future__ import annotations

import numpy as np

from kcache_compiler.compile import lower_until
from kcache_compiler.mlir import operations as mlir
from tests.compiler.codegen_harness import kernel_of

_WHOLE, _PART = "tensor<4x6x32xf32>", "tensor<1x6x16xf32>"
#: Reads parts of an argument and of an intermediate result at static offsets.
_PARTS = f"""
func.func @main(%x: {_WHOLE}) -> ({_PART}, {_PART}, {_WHOLE}) {{
  %s = stablehlo.slice %x [2:3, 0:6, 8:24] : ({_WHOLE}) -> {_PART}
  %r = stablehlo.reverse %s, dims = [2] : {_PART}
  %e = stablehlo.exponential %x : {_WHOLE}
  %v = stablehlo.reverse %e, dims = [0] : {_WHOLE}
  %t = stablehlo.slice %v [3:4, 0:6, 16:32] : ({_WHOLE}) -> {_PART}
  %u = stablehlo.reverse %t, dims = [1] : {_PART}
  return %r, %u, %v : {_PART}, {_PART}, {_WHOLE}
}}"""
_DESCRIPTORS = ("builtin.unrealized_conversion_cast", "llvm.insertvalue", *("memref.subview", "memref.cast"))


def test_static_buffers_have_no_descriptors() -> None:
    with lower_until(_PARTS, 1, "x86-64-v2", "share") as module:
        entry = next(op for op in mlir.named(module, "func.func") if mlir.symbol_of(op) == "kcache_run")
        assert not mlir.named(entry, *_DESCRIPTORS)


def test_launches_read_and_write_parts_at_their_offsets() -> None:
    x = np.random.default_rng(0).standard_normal((4, 6, 32)).astype(np.float32)
    reversed_part, last, whole = kernel_of(_PARTS)(x)
    np.testing.assert_array_equal(reversed_part, x[2:3, :, 8:24][:, :, ::-1])
    np.testing.assert_allclose(whole, np.exp(x)[::-1], rtol=1e-6)
    np.testing.assert_array_equal(last, whole[3:4, ::-1, 16:32])


def test_launches_read_a_result_of_branches_and_a_part_of_it() -> None:
    text = """
    func.func @main(%x: tensor<4x6xf32>, %p: tensor<i1>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %b = "stablehlo.if"(%p) ({
        %n = stablehlo.negate %x : tensor<4x6xf32>
        stablehlo.return %n : tensor<4x6xf32>
      }, {
        %d = stablehlo.add %x, %x : tensor<4x6xf32>
        stablehlo.return %d : tensor<4x6xf32>
      }) : (tensor<i1>) -> tensor<4x6xf32>
      %whole = stablehlo.add %b, %x : tensor<4x6xf32>
      %part = stablehlo.slice %b [1:4, 0:6] : (tensor<4x6xf32>) -> tensor<3x6xf32>
      %padded = stablehlo.pad %part, %zero, low = [1, 0], high = [0, 0], interior = [0, 0]
        : (tensor<3x6xf32>, tensor<f32>) -> tensor<4x6xf32>
      return %whole, %padded : tensor<4x6xf32>, tensor<4x6xf32>
    }"""
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    kernel = kernel_of(text)
    for branch, factor in ((True, -1), (False, 2)):
        whole, padded = kernel(x, np.array(branch))
        np.testing.assert_array_equal(whole, factor * x + x)
        np.testing.assert_array_equal(padded, np.concatenate([0 * x[:1], factor * x[1:]]))
