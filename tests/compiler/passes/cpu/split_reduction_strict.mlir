// RUN: cpu signature..launches numerics=strict
// Under `strict` numerics the order of the additions is that of the program: one launch on the calling thread.

func.func @main(%a: tensor<1048576xf32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<1048576xf32>, tensor<f32>) -> tensor<f32>
  return %sum : tensor<f32>
}

// CHECK-LABEL: func.func private @launch_0(
// CHECK: scf.for %{{.*}} to %c1048576_i64
// CHECK: arith.addf %{{.*}}, %{{.*}} : f32
// CHECK: // launches: [Launch(name='launch_0', ops=('arith.addf',), extent='1', grain='1', flops='', bytes='')]
