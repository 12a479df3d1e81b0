// RUN: nvidia parse..estimates
// The weights of an attention that the program rounds to f16 are computed by the `ex2.approx` instruction: its error is
// far below the rounding.

func.func @main(%q: tensor<64x32xf32>, %k: tensor<64x32xf32>, %v: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %scores = stablehlo.dot_general %q, %k, contracting_dims = [1] x [1] : (tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x64xf32>
  %maximum = stablehlo.reduce(%scores init: %lowest) applies stablehlo.maximum across dimensions = [1] : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
  %rows = stablehlo.broadcast_in_dim %maximum, dims = [0] : (tensor<64xf32>) -> tensor<64x64xf32>
  %shifted = stablehlo.subtract %scores, %rows : tensor<64x64xf32>
  %weights = stablehlo.exponential %shifted : tensor<64x64xf32>
  %sum = stablehlo.reduce(%weights init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x64xf32>, tensor<f32>) -> tensor<64xf32>
  %total = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<64xf32>) -> tensor<64x64xf32>
  %softmax = stablehlo.divide %weights, %total : tensor<64x64xf32>
  %narrow = stablehlo.convert %softmax : (tensor<64x64xf32>) -> tensor<64x64xf16>
  %wide = stablehlo.convert %narrow : (tensor<64x64xf16>) -> tensor<64x64xf32>
  %result = stablehlo.dot_general %wide, %v, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
  return %result : tensor<64x32xf32>
}

// BEFORE: func.call @kcm_exp_f32
// CHECK-LABEL: func.func @main
// CHECK-NOT: kcm_exp_f32
// CHECK: kcache.attention = "0 weights"
// CHECK: %[[DIFFERENCE:.*]] = arith.subf
// CHECK: %[[SCALED:.*]] = arith.mulf %[[DIFFERENCE]], %{{.*}} : f32
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%[[SCALED]]) : (f32) -> f32
