// RUN: cpu subkernel-layouts
// The operands of a subkernel are contiguous, as its ABI requires: a transposed operand is copied to a buffer of its own
// before the call.

#in = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>
#out = affine_map<(d0, d1, d2, d3, d4) -> (d2, d3)>
#pair = affine_map<(d0, d1, d2, d3, d4) -> (d4)>
func.func @main(%a: memref<2x2xf32, strided<[1, 2]>>, %b: memref<2x2xf32>, %pair: memref<1xi1>) {
  linalg.generic {indexing_maps = [#in, #out, #pair],
      iterator_types = ["reduction", "reduction", "reduction", "reduction", "reduction"],
      library_call = "kcache_part {\22name\22:\22kcache_part_0\22}"}
      ins(%a : memref<2x2xf32, strided<[1, 2]>>) outs(%b, %pair : memref<2x2xf32>, memref<1xi1>) {
  ^bb0(%x: f32, %y: f32, %z: i1):
    linalg.yield %y, %z : f32, i1
  }
  return
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[ROWS:.*]] = memref.alloc() : memref<2x2xf32>
// CHECK-NEXT: memref.copy %arg0, %[[ROWS]] : memref<2x2xf32, strided<[1, 2]>> to memref<2x2xf32>
// CHECK-NEXT: linalg.generic {{.*}} ins(%[[ROWS]] : memref<2x2xf32>) outs(%arg1, %arg2 : memref<2x2xf32>, memref<1xi1>)
