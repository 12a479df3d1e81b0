// RUN: cpu signature..launches schedule=group:apart
// With the schedule choice `group:apart` every nest is a launch.

func.func @main(%a: tensor<512x64xf32>) -> tensor<512x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<512x64xf32>, tensor<f32>) -> tensor<512xf32>
  %wide = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<512xf32>) -> tensor<512x64xf32>
  %0 = stablehlo.subtract %a, %wide : tensor<512x64xf32>
  return %0 : tensor<512x64xf32>
}

// CHECK: func.func private @launch_0
// CHECK: func.func private @launch_1
// CHECK: arith.addf
// CHECK: func.func private @launch_2
// CHECK: arith.subf
// CHECK: // workspace: 2048
