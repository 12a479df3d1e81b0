// RUN: cpu signature..launches
// Nests over the same rows share a launch: the mean of a row, and the difference from it, are computed row by row by one
// slice function, so that a row is in the cache when it is read again.

func.func @main(%a: tensor<512x64xf32>) -> tensor<512x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<512x64xf32>, tensor<f32>) -> tensor<512xf32>
  %wide = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<512xf32>) -> tensor<512x64xf32>
  %0 = stablehlo.subtract %a, %wide : tensor<512x64xf32>
  return %0 : tensor<512x64xf32>
}

// BEFORE: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]}
// BEFORE: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]}
// CHECK-LABEL: func.func private @launch_0
// CHECK: scf.for %[[ROW:.*]] = %arg0 to %arg1
// CHECK: %[[SUM:.*]] = scf.for %{{.*}} iter_args
// CHECK: arith.addf
// CHECK: scf.for
// CHECK: arith.subf %{{.*}}, %[[SUM]] : f32
// CHECK-NOT: @launch_1
// CHECK: // launches: [Launch(name='launch_0', ops=('arith.addf', 'arith.subf'), extent='512'
// CHECK-NOT: workspace
