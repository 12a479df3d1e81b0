// RUN: cpu signature..launches
// The operations that `attention` marked become one launch, which computes blocks of keys with an online softmax and never
// materializes the scores.

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
  %result = stablehlo.dot_general %softmax, %v, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
  return %result : tensor<64x32xf32>
}

// BEFORE-COUNT-6: kcache.attention
// CHECK-LABEL: func.func private @launch_0(
// CHECK: llvm.call @attention_f32_f32_f32_run(%arg0, %arg1
// CHECK-LABEL: func.func private @launch_0_weigh_rows
// CHECK: arith.maximumf
// CHECK: arith.addf
// CHECK-LABEL: func.func private @launch_0_finish_rows
// CHECK: arith.divf
// CHECK: // launches: [Launch(name='launch_0', ops=('attention',)
