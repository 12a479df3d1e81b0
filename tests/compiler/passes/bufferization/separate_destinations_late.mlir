// RUN: cpu separate-destinations-late
// After the destinations are known, each result has an empty tensor of its own: one that two results share would be
// placed into the buffer of the first, and copied from there for the second.

func.func @main(%x: memref<4xf32>, %first: memref<4xf32>, %second: memref<4xf32>) {
  %value = arith.constant 1.0 : f32
  %empty = tensor.empty() : tensor<4xf32>
  %fill = linalg.fill ins(%value : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  bufferization.materialize_in_destination %fill in restrict writable %first : (tensor<4xf32>, memref<4xf32>) -> ()
  bufferization.materialize_in_destination %fill in restrict writable %second : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// CHECK-LABEL: func.func @main
// CHECK-COUNT-2: tensor.empty() : tensor<4xf32>
// CHECK: %[[FIRST:.*]] = linalg.fill
// CHECK: bufferization.materialize_in_destination %[[FIRST]] in restrict writable %arg1
// CHECK-NOT: materialize_in_destination %[[FIRST]]
// CHECK: bufferization.materialize_in_destination %{{.*}} in restrict writable %arg2
