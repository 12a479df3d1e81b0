// RUN: cpu signature..launches
// Threads compute the sum of a long row in chunks, so that the division by it is a launch of its own. The exponentials
// are stored in the result, which the division reads and writes: the workspace holds only scalars and partial sums.

func.func @main(%a: tensor<131072xf32>) -> tensor<131072xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %exp = stablehlo.exponential %a : tensor<131072xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<131072xf32>, tensor<f32>) -> tensor<f32>
  %wide = stablehlo.broadcast_in_dim %sum, dims = [] : (tensor<f32>) -> tensor<131072xf32>
  %0 = stablehlo.divide %exp, %wide : tensor<131072xf32>
  return %0 : tensor<131072xf32>
}

// BEFORE: memref.alloc() {{.*}} : memref<131072xf32>
// CHECK-LABEL: func.func private @launch_2(%arg0: i64, %arg1: i64, %arg2: !llvm.ptr
// CHECK: arith.divf
// CHECK: // launches: {{.*}}Launch(name='launch_2', ops=('arith.divf',), extent='131072'
// CHECK: // workspace: 576

// -----

// The exponentials are read after the division: they have a buffer of their own.

func.func @main(%a: tensor<131072xf32>) -> (tensor<131072xf32>, tensor<131072xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %exp = stablehlo.exponential %a : tensor<131072xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<131072xf32>, tensor<f32>) -> tensor<f32>
  %wide = stablehlo.broadcast_in_dim %sum, dims = [] : (tensor<f32>) -> tensor<131072xf32>
  %0 = stablehlo.divide %exp, %wide : tensor<131072xf32>
  %turned = stablehlo.reverse %exp, dims = [0] : tensor<131072xf32>
  %1 = stablehlo.add %turned, %0 : tensor<131072xf32>
  return %0, %1 : tensor<131072xf32>, tensor<131072xf32>
}

// CHECK: // workspace: 524864
