// RUN: cpu parse grouped-products
// Keys of two heads are repeated for two queries each, as one token has them: the queries become rows of a product of
// each head, and the keys are read once.

func.func @main(%q: tensor<4x16xf32>, %k: tensor<2x32x16xf32>) -> tensor<4x32xf32> {
  %repeated = stablehlo.broadcast_in_dim %k, dims = [0, 2, 3] : (tensor<2x32x16xf32>) -> tensor<2x2x32x16xf32>
  %keys = stablehlo.reshape %repeated : (tensor<2x2x32x16xf32>) -> tensor<4x32x16xf32>
  %scores = stablehlo.dot_general %q, %keys, batching_dims = [0] x [0], contracting_dims = [1] x [2] : (tensor<4x16xf32>, tensor<4x32x16xf32>) -> tensor<4x32xf32>
  return %scores : tensor<4x32xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[QUERIES:.*]] = stablehlo.reshape %arg0 : (tensor<4x16xf32>) -> tensor<2x2x16xf32>
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general %[[QUERIES]], %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x2x16xf32>, tensor<2x32x16xf32>) -> tensor<2x2x32xf32>
// CHECK: stablehlo.reshape %[[SCORES]] : (tensor<2x2x32xf32>) -> tensor<4x32xf32>

// -----

// The repeated operand comes first: operands are exchanged.

func.func @main(%v: tensor<2x32x16xf32>, %p: tensor<4x32xf32>) -> tensor<4x16xf32> {
  %repeated = stablehlo.broadcast_in_dim %v, dims = [0, 2, 3] : (tensor<2x32x16xf32>) -> tensor<2x2x32x16xf32>
  %values = stablehlo.reshape %repeated : (tensor<2x2x32x16xf32>) -> tensor<4x32x16xf32>
  %result = stablehlo.dot_general %values, %p, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<4x32x16xf32>, tensor<4x32xf32>) -> tensor<4x16xf32>
  return %result : tensor<4x16xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[WEIGHTS:.*]] = stablehlo.reshape %arg1 : (tensor<4x32xf32>) -> tensor<2x2x32xf32>
// CHECK: stablehlo.dot_general %[[WEIGHTS]], %arg0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x2x32xf32>, tensor<2x32x16xf32>) -> tensor<2x2x16xf32>

// -----

// Eight rows are an attention, which reads repeated keys in place.

func.func @main(%q: tensor<4x8x16xf32>, %k: tensor<2x32x16xf32>) -> tensor<4x8x32xf32> {
  %repeated = stablehlo.broadcast_in_dim %k, dims = [0, 2, 3] : (tensor<2x32x16xf32>) -> tensor<2x2x32x16xf32>
  %keys = stablehlo.reshape %repeated : (tensor<2x2x32x16xf32>) -> tensor<4x32x16xf32>
  %scores = stablehlo.dot_general %q, %keys, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<4x8x16xf32>, tensor<4x32x16xf32>) -> tensor<4x8x32xf32>
  return %scores : tensor<4x8x32xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.dot_general %arg0, %{{.*}} : (tensor<4x8x16xf32>, tensor<4x32x16xf32>) -> tensor<4x8x32xf32>
