// RUN: cpu copies
// A copy of a buffer is a `linalg.generic`: a launch like any other, which may share its loops with others.

func.func @main(%a: memref<4x3xf32>, %b: memref<4x3xf32>) {
  memref.copy %a, %b : memref<4x3xf32> to memref<4x3xf32>
  return
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%arg0 : memref<4x3xf32>) outs(%arg1 : memref<4x3xf32>)
// CHECK-NEXT: ^bb0(%in: f32, %out: f32):
// CHECK-NEXT: linalg.yield %in : f32
// CHECK-NOT: memref.copy
// CHECK: return
