// RUN: cpu math
// Calls of the math library are replaced by the polynomial approximations of the functions, inlined into the bodies.

#id = affine_map<(d0) -> (d0)>
func.func private @kcm_exp_f32(f32) -> f32
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %empty = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf32>) outs(%empty : tensor<4xf32>) {
  ^bb0(%x: f32, %out: f32):
    %y = func.call @kcm_exp_f32(%x) : (f32) -> f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: call
// CHECK: %[[SCALED:.*]] = math.fma %{{.*}}, %{{.*}}, %{{.*}} : f32
// CHECK: %[[SQUARE:.*]] = arith.mulf %[[REST:.*]], %[[REST]] : f32
// CHECK: %[[POLYNOMIAL:.*]] = math.fma %[[SQUARE]], %{{.*}}, %[[REST]] : f32
// CHECK: arith.addf %[[POLYNOMIAL]], %{{.*}} : f32
// CHECK: linalg.yield
// CHECK-NOT: kcm_
