// RUN: cpu math-library
// Float functions of StableHLO and CHLO become calls of the math library, one declaration for each function and
// element type. The definitions are inserted by `math`, after fusion.

func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.tanh %x : tensor<4xf32>
  %1 = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: stablehlo
// CHECK: %{{.*}} = func.call @kcm_tanh_f32(%in) : (f32) -> f32
// CHECK: %{{.*}} = func.call @kcm_erf_f32(%in) : (f32) -> f32
// CHECK: func.func private @kcm_tanh_f32(f32) -> f32
// CHECK: func.func private @kcm_erf_f32(f32) -> f32

// -----
// Integer powers are calls too; arithmetic that MLIR has is left to the upstream legalization.

func.func @main(%x: tensor<4xi32>, %y: tensor<4xi32>) -> tensor<4xi32> {
  %0 = stablehlo.power %x, %y : tensor<4xi32>
  %1 = stablehlo.add %0, %y : tensor<4xi32>
  return %1 : tensor<4xi32>
}

// CHECK-LABEL: func.func @main
// CHECK: func.call @kcm_ipow_i32(%in, %in_0) : (i32, i32) -> i32
// CHECK: stablehlo.add
// CHECK: func.func private @kcm_ipow_i32(i32, i32) -> i32
