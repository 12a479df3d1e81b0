// RUN: cpu signature destinations bufferize forward-results
// Bufferization computes a result in a buffer of its own and copies it to the caller's at the end. The allocation is
// replaced by the caller's buffer, and the copy is removed.

#id = affine_map<(d0) -> (d0)>
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %empty = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf32>) outs(%empty : tensor<4xf32>) {
  ^bb0(%x: f32, %out: f32):
    %y = arith.negf %x : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// BEFORE: memref.alloc
// BEFORE: memref.copy
// CHECK-LABEL: func.func @main
// CHECK-NOT: memref.alloc
// CHECK: linalg.generic {{.*}} ins(%arg0 : memref<4xf32>) outs(%arg1 : memref<4xf32>)
// CHECK-NOT: memref.copy
// CHECK: return
