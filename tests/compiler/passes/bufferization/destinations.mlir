// RUN: cpu signature destinations
// `main` takes the caller's buffers, inputs before outputs, and writes each result into its buffer. It returns the sizes
// of dynamic output dimensions.

func.func @main(%a: tensor<?x4xf32>) -> tensor<?x4xf32> {
  return %a : tensor<?x4xf32>
}

// BEFORE: func.func @main(%arg0: tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-LABEL: func.func @main(%arg0: memref<?x4xf32>, %arg1: memref<?x4xf32>) -> index
// CHECK-NEXT: %[[TENSOR:.*]] = bufferization.to_tensor %arg0 restrict
// CHECK: %[[SIZE:.*]] = tensor.dim %[[TENSOR]], %c0
// CHECK-NEXT: bufferization.materialize_in_destination %[[TENSOR]] in restrict writable %arg1
// CHECK-NEXT: return %[[SIZE]] : index
