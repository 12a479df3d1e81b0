// RUN: cpu select-and-scatter
// `select_and_scatter` becomes a window reduction that selects an index of each window, and a scatter of the
// source to these indices.

func.func @main(%x: tensor<4xf32>, %source: tensor<2xf32>, %init: tensor<f32>) -> tensor<4xf32> {
  %0 = "stablehlo.select_and_scatter"(%x, %source, %init) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %ge = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %ge : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) {window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}
      : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: select_and_scatter
// CHECK: %[[IOTA:.*]] = stablehlo.iota dim = 0 : tensor<4xi64>
// CHECK: %[[SELECTED:.*]]:2 = "stablehlo.reduce_window"(%arg0, %{{.*}}, %arg2, %{{.*}})
// CHECK: stablehlo.compare GE, %arg3, %arg5
// CHECK: %[[INDICES:.*]] = stablehlo.reshape %[[SELECTED]]#1 : (tensor<2xi64>) -> tensor<2x1xi64>
// CHECK: "stablehlo.scatter"(%{{.*}}, %[[INDICES]], %{{.*}})
// CHECK: stablehlo.add
