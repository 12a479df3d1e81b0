// RUN: cpu narrow-roundings
// Under `default` numerics only the marked roundings stay, and the mark is removed.

#id = affine_map<(d0) -> (d0)>
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %empty = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<4xf32>, tensor<4xf32>) outs(%empty : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %marked = arith.mulf %x, %x {kcache.rounded} : f32
    %half = arith.truncf %marked fastmath<contract> : f32 to f16
    %wide = arith.extf %half fastmath<contract> : f16 to f32
    %free = arith.mulf %wide, %y : f32
    %other = arith.truncf %free fastmath<contract> : f32 to f16
    %result = arith.extf %other fastmath<contract> : f16 to f32
    linalg.yield %result : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK: %[[VALUE:.*]] = arith.mulf %in, %in : f32
// CHECK-NEXT: arith.truncf %[[VALUE]] fastmath<none> : f32 to f16
// CHECK: arith.truncf %{{.*}} fastmath<contract> : f32 to f16
