// RUN: cpu invariants
// An operation on values from outside of a loop moves before it, with the views that it reads; so does a transpose of
// which the loop reads slices. A broadcast, which fuses with its reader, stays.

func.func @main(%n: tensor<i64>, %a: tensor<64x32xf32>, %b: tensor<64x32xf32>, %x: tensor<64xf32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %0:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i64>, tensor<64xf32>
    cond {
      %less = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %two = stablehlo.constant dense<2.0> : tensor<f32>
      %twos = stablehlo.broadcast_in_dim %two, dims = [] : (tensor<f32>) -> tensor<64x32xf32>
      %scaled = stablehlo.multiply %b, %twos : tensor<64x32xf32>
      %sum = stablehlo.add %a, %scaled : tensor<64x32xf32>
      %turned = stablehlo.transpose %sum, dims = [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
      %row = stablehlo.dynamic_slice %turned, %i, %zero, sizes = [1, 64] : (tensor<32x64xf32>, tensor<i64>, tensor<i64>) -> tensor<1x64xf32>
      %flat = stablehlo.reshape %row : (tensor<1x64xf32>) -> tensor<64xf32>
      %twice = stablehlo.broadcast_in_dim %two, dims = [] : (tensor<f32>) -> tensor<64xf32>
      %half = stablehlo.multiply %h, %twice : tensor<64xf32>
      %new = stablehlo.add %half, %flat : tensor<64xf32>
      %one = stablehlo.constant dense<1> : tensor<i64>
      %next = stablehlo.add %i, %one : tensor<i64>
      stablehlo.return %next, %new : tensor<i64>, tensor<64xf32>
    }
  return %0#1 : tensor<64xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[TWOS:.*]] = stablehlo.broadcast_in_dim
// CHECK-NEXT: %[[SCALED:.*]] = stablehlo.multiply %arg2, %[[TWOS]]
// CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %arg1, %[[SCALED]]
// CHECK-NEXT: %[[TURNED:.*]] = stablehlo.transpose %[[SUM]]
// CHECK-NEXT: stablehlo.while
// CHECK: stablehlo.dynamic_slice %[[TURNED]]
// CHECK: stablehlo.broadcast_in_dim
// CHECK: stablehlo.multiply %{{.*}} : tensor<64xf32>

// -----
// A conversion to a wider type stays: each iteration would read more bytes.

func.func @main(%n: tensor<i64>, %a: tensor<64x32xbf16>, %x: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %0:2 = stablehlo.while(%i = %zero, %h = %x) : tensor<i64>, tensor<64x32xf32>
    cond {
      %less = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %wide = stablehlo.convert %a : (tensor<64x32xbf16>) -> tensor<64x32xf32>
      %new = stablehlo.add %h, %wide : tensor<64x32xf32>
      %one = stablehlo.constant dense<1> : tensor<i64>
      %next = stablehlo.add %i, %one : tensor<i64>
      stablehlo.return %next, %new : tensor<i64>, tensor<64x32xf32>
    }
  return %0#1 : tensor<64x32xf32>
}

// CHECK: stablehlo.while
// CHECK: stablehlo.convert %arg1

// -----
// A carried value that no iteration changes is invariant.

func.func @main(%n: tensor<i64>, %a: tensor<64x32xf32>, %x: tensor<64xf32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %0:3 = stablehlo.while(%i = %zero, %h = %x, %same = %a) : tensor<i64>, tensor<64xf32>, tensor<64x32xf32>
    cond {
      %less = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %turned = stablehlo.transpose %same, dims = [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
      %row = stablehlo.dynamic_slice %turned, %i, %zero, sizes = [1, 64] : (tensor<32x64xf32>, tensor<i64>, tensor<i64>) -> tensor<1x64xf32>
      %flat = stablehlo.reshape %row : (tensor<1x64xf32>) -> tensor<64xf32>
      %new = stablehlo.add %h, %flat : tensor<64xf32>
      %one = stablehlo.constant dense<1> : tensor<i64>
      %next = stablehlo.add %i, %one : tensor<i64>
      stablehlo.return %next, %new, %same : tensor<i64>, tensor<64xf32>, tensor<64x32xf32>
    }
  return %0#1 : tensor<64xf32>
}

// CHECK: %[[TURNED:.*]] = stablehlo.transpose %arg1
// CHECK-NEXT: stablehlo.while
// CHECK: stablehlo.dynamic_slice %[[TURNED]]
