"""A small program with the operations of most models: compiled by a worker that has nothing to do.

Its first kernel takes a tenth longer than the next ones: modules are imported, the libraries of products are
loaded, the thread pool is compiled, and memory is mapped.
"""

from __future__ import annotations

import kcache_compiler
from kcache_compiler.types import CompileOptions, LibraryCache

_PROGRAM = b"""
module { func.func @main(%tokens: tensor<64xi64>, %table: tensor<96x64xf32>, %w: tensor<64x192xf32>,
    %b: tensor<192xf32>, %image: tensor<1x8x16x16xf32>, %f: tensor<16x8x3x3xf32>)
    -> (tensor<2x32x64xf32>, tensor<1x16x16x16xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %x1 = "stablehlo.gather"(%table, %tokens) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 64>} : (tensor<96x64xf32>, tensor<64xi64>) -> tensor<64x64xf32>
  %x = stablehlo.reshape %x1 : (tensor<64x64xf32>) -> tensor<2x32x64xf32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<2x32x64xf32>, tensor<f32>) -> tensor<2x32xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<2x32xf32>) -> tensor<2x32x64xf32>
  %c = stablehlo.subtract %x, %sb : tensor<2x32x64xf32>
  %p = stablehlo.dot_general %c, %w, contracting_dims = [2] x [0]
    : (tensor<2x32x64xf32>, tensor<64x192xf32>) -> tensor<2x32x192xf32>
  %bb = stablehlo.broadcast_in_dim %b, dims = [2] : (tensor<192xf32>) -> tensor<2x32x192xf32>
  %pb = stablehlo.add %p, %bb : tensor<2x32x192xf32>
  %t = stablehlo.tanh %pb : tensor<2x32x192xf32>
  %q = stablehlo.slice %t [0:2, 0:32, 0:64] : (tensor<2x32x192xf32>) -> tensor<2x32x64xf32>
  %k = stablehlo.slice %t [0:2, 0:32, 64:128] : (tensor<2x32x192xf32>) -> tensor<2x32x64xf32>
  %v = stablehlo.slice %t [0:2, 0:32, 128:192] : (tensor<2x32x192xf32>) -> tensor<2x32x64xf32>
  %a = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<2x32x64xf32>, tensor<2x32x64xf32>) -> tensor<2x32x32xf32>
  %m = stablehlo.reduce(%a init: %low) applies stablehlo.maximum across dimensions = [2]
    : (tensor<2x32x32xf32>, tensor<f32>) -> tensor<2x32xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0, 1] : (tensor<2x32xf32>) -> tensor<2x32x32xf32>
  %d = stablehlo.subtract %a, %mb : tensor<2x32x32xf32>
  %e = stablehlo.exponential %d : tensor<2x32x32xf32>
  %es = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<2x32x32xf32>, tensor<f32>) -> tensor<2x32xf32>
  %eb = stablehlo.broadcast_in_dim %es, dims = [0, 1] : (tensor<2x32xf32>) -> tensor<2x32x32xf32>
  %n = stablehlo.divide %e, %eb : tensor<2x32x32xf32>
  %o = stablehlo.dot_general %n, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<2x32x32xf32>, tensor<2x32x64xf32>) -> tensor<2x32x64xf32>
  %i = stablehlo.convolution(%image, %f) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x16x16xf32>, tensor<16x8x3x3xf32>) -> tensor<1x16x16x16xf32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<1x16x16x16xf32>
  %r = stablehlo.maximum %i, %zeros : tensor<1x16x16x16xf32>
  return %o, %r : tensor<2x32x64xf32>, tensor<1x16x16x16xf32> } }
"""


def compile_typical_program(target: str, libraries: LibraryCache | None) -> None:
    """Compile the program for ``target``; raises what ``compile_spec`` raises."""
    canonical = kcache_compiler.canonicalize(_PROGRAM, "stablehlo")
    kcache_compiler.compile_spec(
        canonical.spec_text, canonical.arg_spec, target, CompileOptions(), lambda _: None, libraries
    )
