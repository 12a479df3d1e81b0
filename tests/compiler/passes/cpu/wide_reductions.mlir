// RUN: cpu wide-reductions
// A reduction of f16 accumulates in f32 and rounds the total once, in vectors of accumulators.

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @main(%a: tensor<4x8xf16>, %init: tensor<4xf16>) -> tensor<4xf16> {
  %0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<4x8xf16>) outs(%init : tensor<4xf16>) {
  ^bb0(%x: f16, %total: f16):
    %wide = arith.extf %x : f16 to f32
    %old = arith.extf %total : f16 to f32
    %sum = arith.addf %old, %wide : f32
    %new = arith.truncf %sum : f32 to f16
    linalg.yield %new : f16
  } -> tensor<4xf16>
  return %0 : tensor<4xf16>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[INIT:.*]] = linalg.generic {{.*}} ins(%arg1 : tensor<4xf16>) outs(%{{.*}} : tensor<4xf32>)
// CHECK: %[[TOTAL:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x8xf16>) outs(%[[INIT]] : tensor<4xf32>)
// CHECK: arith.addf %out, %{{.*}} : f32
// CHECK-NOT: arith.truncf
// CHECK: linalg.generic {{.*}} ins(%[[TOTAL]] : tensor<4xf32>)
// CHECK: arith.truncf %in : f32 to f16
