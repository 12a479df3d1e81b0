// RUN: cpu separate-destinations
// Two operations that write into one `tensor.empty` get one each: bufferization would copy what they share.

#id = affine_map<(d0) -> (d0)>
func.func @main(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %empty = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf32>) outs(%empty : tensor<4xf32>) {
  ^bb0(%x: f32, %out: f32):
    %y = arith.negf %x : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf32>) outs(%empty : tensor<4xf32>) {
  ^bb0(%x: f32, %out: f32):
    %y = math.absf %x : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[FIRST:.*]] = tensor.empty() : tensor<4xf32>
// CHECK-NEXT: %[[SECOND:.*]] = tensor.empty() : tensor<4xf32>
// CHECK-NEXT: linalg.generic {{.*}} outs(%[[SECOND]] : tensor<4xf32>)
// CHECK: linalg.generic {{.*}} outs(%[[FIRST]] : tensor<4xf32>)
