// RUN: cpu literals
// A scalar constant in memory becomes an operand that is passed by value; others stay in memory.

#id = affine_map<(d0) -> (d0)>
#scalar = affine_map<(d0) -> ()>
#first = affine_map<(d0) -> (0)>
memref.global "private" constant @six : memref<f32> = dense<6.0>
memref.global "private" constant @table : memref<2xf32> = dense<[1.0, 2.0]>
memref.global "private" constant @element : memref<1xf32> = dense<5.0>
func.func @main(%a: memref<2xf32>) {
  %six = memref.get_global @six : memref<f32>
  %table = memref.get_global @table : memref<2xf32>
  %element = memref.get_global @element : memref<1xf32>
  linalg.generic {indexing_maps = [#scalar, #id, #first, #id], iterator_types = ["parallel"]}
      ins(%six, %table, %element : memref<f32>, memref<2xf32>, memref<1xf32>) outs(%a : memref<2xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32, %out: f32):
    %sum = arith.addf %x, %y : f32
    %total = arith.addf %sum, %z : f32
    linalg.yield %total : f32
  }
  return
}

// CHECK-LABEL: func.func @main
// CHECK: %[[SIX:.*]] = arith.constant 6.000000e+00 : f32
// CHECK-NOT: memref.get_global @six
// CHECK: %[[TABLE:.*]] = memref.get_global @table : memref<2xf32>
// CHECK: %[[ELEMENT:.*]] = memref.get_global @element : memref<1xf32>
// CHECK: ins(%[[SIX]], %[[TABLE]], %[[ELEMENT]] : f32, memref<2xf32>, memref<1xf32>)
