// RUN: cpu hoist-sizes
// The size of a buffer that a body asks for is read before the loops.

#id = affine_map<(d0) -> (d0)>
func.func @main(%a: memref<?xindex>, %b: memref<?xf32>) {
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%a : memref<?xindex>) {
  ^bb0(%out: index):
    %axis = arith.constant 0 : index
    %size = memref.dim %b, %axis : memref<?xf32>
    linalg.yield %size : index
  }
  return
}

// CHECK-LABEL: func.func @main
// CHECK: %[[SIZE:.*]] = memref.dim %arg1, %c0 : memref<?xf32>
// CHECK-NEXT: linalg.generic
// CHECK-NOT: memref.dim
// CHECK: linalg.yield %[[SIZE]] : index
