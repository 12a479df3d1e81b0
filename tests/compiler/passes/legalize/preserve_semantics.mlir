// RUN: cpu preserve-semantics
// Fix-ups before the upstream legalization, where its result would differ from the StableHLO specification.
// Conversions of floats to integers saturate, and NaN becomes zero.

func.func @main(%a: tensor<4xf32>) -> tensor<4xi8> {
  %0 = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[LOW:.*]] = arith.cmpf olt, %in, %{{.*}} : f32
// CHECK: %[[HIGH:.*]] = arith.cmpf oge, %in, %{{.*}} : f32
// CHECK: %[[NAN:.*]] = arith.cmpf uno, %in, %in : f32
// CHECK: %[[SAFE:.*]] = arith.select %{{.*}}, %{{.*}}, %in : f32
// CHECK: %[[CONVERTED:.*]] = arith.fptosi %[[SAFE]] : f32 to i8
// CHECK: %[[MINIMUM:.*]] = arith.constant -128 : i8
// CHECK: %[[CLAMPED:.*]] = arith.select %[[LOW]], %[[MINIMUM]], %[[CONVERTED]]
// CHECK: arith.select %[[HIGH]], %{{.*}}, %[[CLAMPED]]

// -----
// A reduction over an axis without elements is its initial value.

func.func @main(%a: tensor<3x0xf32>, %init: tensor<f32>) -> tensor<3xf32> {
  %0 = stablehlo.reduce(%a init: %init) applies stablehlo.add across dimensions = [1]
      : (tensor<3x0xf32>, tensor<f32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<3xf32>
// CHECK-NEXT: return

// -----
// Division in programs that are linalg already: MLIR leaves division by zero, and of the least integer by -1,
// undefined, and a CPU traps. Such a division is one by 1.

#id = affine_map<(d0) -> (d0)>
func.func @main(%a: tensor<4xi32>, %b: tensor<4xi32>) -> tensor<4xi32> {
  %empty = tensor.empty() : tensor<4xi32>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<4xi32>, tensor<4xi32>) outs(%empty : tensor<4xi32>) {
  ^bb0(%x: i32, %y: i32, %out: i32):
    %quotient = arith.divsi %x, %y : i32
    linalg.yield %quotient : i32
  } -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[BY_ZERO:.*]] = arith.cmpi eq, %in_0, %c0_i32
// CHECK: %[[OVERFLOWS:.*]] = arith.andi
// CHECK: %[[UNDEFINED:.*]] = arith.ori %[[BY_ZERO]], %[[OVERFLOWS]] : i1
// CHECK: %[[DIVISOR:.*]] = arith.select %[[UNDEFINED]], %c1_i32, %in_0 : i32
// CHECK: arith.divsi %in, %[[DIVISOR]] : i32
