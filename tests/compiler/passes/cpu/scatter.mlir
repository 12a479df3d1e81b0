// RUN: cpu signature..launches
// A scatter is a launch that copies the operand, then combines the updates at their indices; indices out of bounds are
// skipped.

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

// BEFORE: library_call = "kcache_scatter
// CHECK-LABEL: func.func private @launch_1
// CHECK: %[[INDEX:[0-9]+]] = arith.extsi %{{.*}} : i32 to i64
// CHECK-NEXT: arith.cmpi sge, %[[INDEX]], %arg0 : i64
// CHECK-NEXT: arith.cmpi slt, %[[INDEX]], %arg1 : i64
// CHECK: scf.if %{{.*}} {
// CHECK: %[[UPDATE:[0-9]+]] = llvm.load %{{.*}} -> f32
// CHECK: %[[OLD:[0-9]+]] = llvm.load %{{.*}} -> f32
// CHECK-NEXT: %[[SUM:[0-9]+]] = arith.addf %[[OLD]], %[[UPDATE]] : f32
// CHECK: %[[NEW:[0-9]+]] = arith.select %{{.*}}, %[[SUM]], %[[OLD]] : f32
// CHECK: llvm.store %[[NEW]]
// CHECK: ops=('copy',)
// CHECK-SAME: ops=('scatter',)
