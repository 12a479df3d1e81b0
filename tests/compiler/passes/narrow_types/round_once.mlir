// RUN: cpu round-once
// A conversion of f64 to f16 through f32 would round twice. It goes through an f32 that is rounded to odd, after which
// the second rounding is the only one that counts.

func.func @main(%x: f64) -> f16 {
  %0 = arith.truncf %x : f64 to f16
  return %0 : f16
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[NEAREST:.*]] = arith.truncf %arg0 : f64 to f32
// CHECK: %[[INEXACT:.*]] = arith.cmpf one, %{{.*}}, %arg0 : f64
// CHECK: %[[TRUNCATED:.*]] = arith.subi
// CHECK: %[[STICKY:.*]] = arith.select %[[INEXACT]]
// CHECK: %[[ODD:.*]] = arith.ori %[[TRUNCATED]], %[[STICKY]] : i32
// CHECK: %[[ROUNDED_TO_ODD:.*]] = arith.bitcast %[[ODD]] : i32 to f32
// CHECK: arith.truncf %[[ROUNDED_TO_ODD]] : f32 to f16

// -----
// A conversion of f32 rounds once anyway.

func.func @main(%x: f32) -> f16 {
  %0 = arith.truncf %x : f32 to f16
  return %0 : f16
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: arith.truncf %arg0 : f32 to f16
// CHECK-NEXT: return
