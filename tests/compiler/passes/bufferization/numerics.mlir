// RUN: cpu numerics
// Under `default` numerics the combiner of a reduction may be reassociated, and a product that only the sum reads may be
// contracted into it. Elementwise arithmetic gets no flags, except a division by what is the same along the row.

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
// CHECK: %[[SQUARE:.*]] = arith.mulf %in, %in fastmath<contract> : f32
// CHECK-NEXT: arith.addf %out, %[[SQUARE]] fastmath<reassoc,contract> : f32
// CHECK: %[[PRODUCT:.*]] = arith.mulf %in, %in : f32
// CHECK-NEXT: arith.divf %[[PRODUCT]], %in_0 fastmath<arcp> : f32
