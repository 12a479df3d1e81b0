// RUN: cpu fuse
// An elementwise producer is merged into a reduction, which reads each of its elements once. The reduction is not
// merged into its own broadcast consumer: it would be recomputed for each element.

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @main(%a: tensor<4x8xf32>, %init: tensor<4xf32>) -> tensor<4x8xf32> {
  %empty = tensor.empty() : tensor<4x8xf32>
  %square = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x8xf32>) outs(%empty : tensor<4x8xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.mulf %x, %x : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%square : tensor<4x8xf32>) outs(%init : tensor<4xf32>) {
  ^bb0(%x: f32, %total: f32):
    %0 = arith.addf %total, %x : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %scaled = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %sum : tensor<4x8xf32>, tensor<4xf32>) outs(%empty : tensor<4x8xf32>) {
  ^bb0(%x: f32, %total: f32, %out: f32):
    %0 = arith.divf %x, %total : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  return %scaled : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<4x8xf32>)
// CHECK: %[[SQUARE:.*]] = arith.mulf %in, %in : f32
// CHECK-NEXT: arith.addf %out, %[[SQUARE]] : f32
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[SUM]] : tensor<4x8xf32>, tensor<4xf32>)
// CHECK: arith.divf %in, %in_0 : f32
// CHECK-NOT: linalg.generic
// CHECK: return
