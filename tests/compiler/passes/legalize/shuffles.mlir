// RUN: cpu regions..shuffles
// After the legalization the noted cast becomes a marker: a `linalg.generic` with the attributes of the scatter, whose
// body is the region as scalar arithmetic. A launch is made of it after bufferization.

func.func @main(%x: tensor<8xf32>, %at: tensor<2x1xi32>, %updates: tensor<2xf32>) -> tensor<8xf32> {
  %0 = "stablehlo.scatter"(%x, %at, %updates) ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    %sum = stablehlo.add %old, %new : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
      : (tensor<8xf32>, tensor<2x1xi32>, tensor<2xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// BEFORE: builtin.unrealized_conversion_cast %arg0, %arg1, %arg2
// CHECK-LABEL: func.func @main
// CHECK-NOT: unrealized_conversion_cast
// CHECK: library_call = "kcache_scatter
// CHECK-SAME: ins(%arg1, %arg2, %{{.*}}) outs(%arg0 : tensor<8xf32>)
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: arith.select %{{.*}}, %{{.*}}, %out : f32
// CHECK: linalg.yield
