// RUN: cpu parse..attention
// Softmax attention is recognized by what its operations compute: scores, row maximum, weights, row sum, quotient, and
// the product with the values. Each operation gets its role; the last one says how many there are.

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

// BEFORE-NOT: kcache.attention
// CHECK-LABEL: func.func @main
// CHECK: kcache.attention = "0 scores"
// CHECK: kcache.attention = "0 top"
// CHECK: arith.maximumf
// CHECK: kcache.attention = "0 weights"
// CHECK: func.call @kcm_exp_f32
// CHECK: kcache.attention = "0 total"
// CHECK: kcache.attention = "0 share"
// CHECK: arith.divf
// CHECK: kcache.attention = "0 mixed", kcache.members = 6 : i64
