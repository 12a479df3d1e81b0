// RUN: cpu definitions
// Operations that are defined by simpler StableHLO operations are expanded: batch normalization for inference is
// arithmetic on broadcast statistics.

func.func @main(%x: tensor<4x3xf32>, %scale: tensor<3xf32>, %offset: tensor<3xf32>, %mean: tensor<3xf32>,
                %variance: tensor<3xf32>) -> tensor<4x3xf32> {
  %0 = "stablehlo.batch_norm_inference"(%x, %scale, %offset, %mean, %variance)
      {epsilon = 1.0e-3 : f32, feature_index = 1 : i64}
      : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: call @[[DEFINITION:.*]](%arg0, %arg1, %arg2, %arg3, %arg4)
// CHECK: func.func private @[[DEFINITION]](%arg0: tensor<4x3xf32>
// CHECK-NOT: batch_norm
// CHECK: %[[SCALE:.*]] = stablehlo.broadcast_in_dim %arg1, dims = [1]
// CHECK: %[[CENTERED:.*]] = stablehlo.subtract %arg0
// CHECK: %[[ROOT:.*]] = stablehlo.sqrt
// CHECK-NEXT: %[[NORMALIZED:.*]] = stablehlo.divide %[[CENTERED]], %[[ROOT]]
// CHECK-NEXT: %[[SCALED:.*]] = stablehlo.multiply %[[SCALE]], %[[NORMALIZED]]
// CHECK-NEXT: stablehlo.add %[[SCALED]]
