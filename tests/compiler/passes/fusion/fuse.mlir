// RUN: cpu fuse
// An elementwise producer is merged into its only consumer: one `linalg.generic` is left, and the intermediate
// tensor is not materialized.

#id = affine_map<(d0) -> (d0)>
func.func @main(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %empty = tensor.empty() : tensor<8xf32>
  %product = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%empty : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.mulf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %other = tensor.empty() : tensor<8xf32>
  %sum = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%product, %b : tensor<8xf32>, tensor<8xf32>) outs(%other : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %sum : tensor<8xf32>
}

// CHECK-LABEL: func.func @main
// CHECK-COUNT-1: linalg.generic
// CHECK-SAME: ins(%arg1, %arg0, %arg1 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
// CHECK: %[[PRODUCT:.*]] = arith.mulf %in_0, %in_1 : f32
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[PRODUCT]], %in : f32
// CHECK-NEXT: linalg.yield %[[SUM]]
// CHECK-NOT: linalg.generic
// CHECK: return
