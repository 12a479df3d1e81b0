// RUN: cpu signature..launches
// A reduction to one element has no rows to divide among threads. Under `default` numerics it is split into chunks whose
// partial sums go to the workspace; a second launch combines them.

func.func @main(%a: tensor<1048576xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<1048576xf32>, tensor<f32>) -> tensor<f32>
  return %sum : tensor<f32>
}

// CHECK-LABEL: func.func private @launch_1(
// CHECK: scf.for %[[CHUNK:.*]] = %arg0 to %arg1
// CHECK: arith.addf {{.*}} fastmath<reassoc,contract> : f32
// CHECK-LABEL: func.func private @launch_1_1(
// CHECK: scf.for %{{.*}} to %c64_i64
// CHECK: arith.addf {{.*}} fastmath<reassoc,contract> : f32
// CHECK: Launch(name='launch_1', ops=('arith.addf',), extent='64'
// CHECK-SAME: Launch(name='launch_1_1', ops=('arith.addf',), extent='1'
