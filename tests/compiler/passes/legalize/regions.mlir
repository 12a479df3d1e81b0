// RUN: cpu regions
// The upstream legalization lowers neither scatter nor sort, but it lowers the region of a reduction. So their
// regions are moved to a reduction of an undefined tensor, and the operation itself becomes an unrealized cast with
// a note of its attributes. `shuffles` reads both after the legalization.

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

// CHECK-LABEL: func.func @main
// CHECK-NOT: stablehlo.scatter
// CHECK: %[[REGION:.*]] = stablehlo.reduce(%{{.*}} init: %{{.*}}) applies stablehlo.add
// CHECK-NEXT: builtin.unrealized_conversion_cast %arg0, %arg1, %arg2, %[[REGION]]
// CHECK-SAME: kcache_shuffle = "{\22kind\22: \22scatter\22
