// RUN: cpu numerics numerics=strict
// Under `strict` numerics no operation gets a flag.

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @main(%a: memref<4x8xf32>, %total: memref<4xf32>, %out: memref<4x8xf32>) {
  linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a : memref<4x8xf32>) outs(%total : memref<4xf32>) {
  ^bb0(%x: f32, %sum: f32):
    %square = arith.mulf %x, %x : f32
    %0 = arith.addf %sum, %square : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %total : memref<4x8xf32>, memref<4xf32>) outs(%out : memref<4x8xf32>) {
  ^bb0(%x: f32, %sum: f32, %old: f32):
    %product = arith.mulf %x, %x : f32
    %0 = arith.divf %product, %sum : f32
    linalg.yield %0 : f32
  }
  return
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: fastmath
// CHECK: return
