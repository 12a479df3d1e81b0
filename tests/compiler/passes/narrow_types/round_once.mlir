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

// -----
// A conversion of bf16 to f64 goes through f32, as LLVM's does: no bf16 is live from one block to another.

func.func @main(%x: bf16) -> f64 {
  %0 = arith.extf %x : bf16 to f64
  return %0 : f64
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[SINGLE:.*]] = arith.extf %arg0 : bf16 to f32
// CHECK-NEXT: arith.extf %[[SINGLE]] : f32 to f64
// CHECK-NEXT: return

// -----
// There are instructions for f16.

func.func @main(%x: f16) -> f64 {
  %0 = arith.extf %x : f16 to f64
  return %0 : f64
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: arith.extf %arg0 : f16 to f64
// CHECK-NEXT: return
