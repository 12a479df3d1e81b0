// RUN: cpu parse transposes
// The canonical form has windows innermost where a bias of each head is added to a mask of each window. Everything that
// follows is computed in the order of the product instead, and the second product reads it there.

func.func @main(%q: tensor<4x8x2x16xf32>, %k: tensor<4x8x2x16xf32>, %v: tensor<4x8x2x16xf32>, %bias: tensor<2x8x8xf32>, %mask: tensor<4x8x8xf32>) -> tensor<2x4x8x16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %scores = stablehlo.dot_general %q, %k, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<4x8x2x16xf32>, tensor<4x8x2x16xf32>) -> tensor<4x2x8x8xf32>
  %moved = stablehlo.transpose %scores, dims = [1, 2, 3, 0] : (tensor<4x2x8x8xf32>) -> tensor<2x8x8x4xf32>
  %heads = stablehlo.broadcast_in_dim %bias, dims = [0, 1, 2] : (tensor<2x8x8xf32>) -> tensor<2x8x8x4xf32>
  %last = stablehlo.transpose %mask, dims = [1, 2, 0] : (tensor<4x8x8xf32>) -> tensor<8x8x4xf32>
  %windows = stablehlo.broadcast_in_dim %last, dims = [1, 2, 3] : (tensor<8x8x4xf32>) -> tensor<2x8x8x4xf32>
  %both = stablehlo.add %heads, %windows : tensor<2x8x8x4xf32>
  %biased = stablehlo.add %both, %moved : tensor<2x8x8x4xf32>
  %weights = stablehlo.exponential %biased : tensor<2x8x8x4xf32>
  %sum = stablehlo.reduce(%weights init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x8x8x4xf32>, tensor<f32>) -> tensor<2x8x4xf32>
  %total = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 3] : (tensor<2x8x4xf32>) -> tensor<2x8x8x4xf32>
  %softmax = stablehlo.divide %weights, %total : tensor<2x8x8x4xf32>
  %result = stablehlo.dot_general %softmax, %v, batching_dims = [0, 3] x [2, 0], contracting_dims = [2] x [1] : (tensor<2x8x8x4xf32>, tensor<4x8x2x16xf32>) -> tensor<2x4x8x16xf32>
  return %result : tensor<2x4x8x16xf32>
}

// BEFORE: stablehlo.add %{{.*}} : tensor<2x8x8x4xf32>
// CHECK-LABEL: func.func @main
// CHECK: %[[SCORES:.*]] = stablehlo.dot_general
// CHECK-DAG: %[[HEADS:.*]] = stablehlo.broadcast_in_dim %arg3, dims = [1, 2, 3] : (tensor<2x8x8xf32>) -> tensor<4x2x8x8xf32>
// CHECK-DAG: %[[WINDOWS:.*]] = stablehlo.broadcast_in_dim %arg4, dims = [0, 2, 3] : (tensor<4x8x8xf32>) -> tensor<4x2x8x8xf32>
// CHECK: %[[BOTH:.*]] = stablehlo.add %[[HEADS]], %[[WINDOWS]] : tensor<4x2x8x8xf32>
// CHECK: %[[BIASED:.*]] = stablehlo.add %[[BOTH]], %[[SCORES]] : tensor<4x2x8x8xf32>
// CHECK: stablehlo.reduce{{.*}} across dimensions = [3]
// CHECK: %[[SOFTMAX:.*]] = stablehlo.divide {{.*}} : tensor<4x2x8x8xf32>
// CHECK: stablehlo.dot_general %[[SOFTMAX]], %arg2, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1]
// CHECK: stablehlo.transpose %{{.*}}, dims = [1, 0, 2, 3] : (tensor<4x2x8x16xf32>) -> tensor<2x4x8x16xf32>

// -----

// What the other operand is is no broadcast: it would have to be transposed in turn.

func.func @main(%a: tensor<8x16xf32>, %b: tensor<4x16xf32>, %c: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %product = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<8x16xf32>, tensor<4x16xf32>) -> tensor<8x4xf32>
  %moved = stablehlo.transpose %product, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %sum = stablehlo.add %moved, %c : tensor<4x8xf32>
  return %sum : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.add %{{.*}}, %arg2 : tensor<4x8xf32>

// -----

// A reduction whose second result is read stays.

func.func @main(%a: tensor<8x16xf32>, %b: tensor<4x16xf32>, %c: tensor<8x4xi32>) -> tensor<4xi32> {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %product = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<8x16xf32>, tensor<4x16xf32>) -> tensor<8x4xf32>
  %moved = stablehlo.transpose %product, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %indices = stablehlo.transpose %c, dims = [1, 0] : (tensor<8x4xi32>) -> tensor<4x8xi32>
  %most, %where = stablehlo.reduce(%moved init: %least), (%indices init: %none) across dimensions = [1] : (tensor<4x8xf32>, tensor<4x8xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
   reducer(%x: tensor<f32>, %y: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
    %greater = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %value = stablehlo.select %greater, %x, %y : tensor<i1>, tensor<f32>
    %place = stablehlo.select %greater, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %value, %place : tensor<f32>, tensor<i32>
  }
  return %where : tensor<4xi32>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[RESULTS:.*]]:2 = stablehlo.reduce
// CHECK: return %[[RESULTS]]#1
