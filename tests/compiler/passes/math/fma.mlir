// RUN: cpu fma target=x86-64-v2
// On a target without fused multiply-add, `math.fma` on f32 is exact arithmetic in f64, rounded to odd and then to f32.

func.func @main(%a: f32, %b: f32, %c: f32) -> f32 {
  %0 = math.fma %a, %b, %c : f32
  return %0 : f32
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: math.fma
// CHECK: %[[A:.*]] = arith.extf %arg0 : f32 to f64
// CHECK: %[[B:.*]] = arith.extf %arg1 : f32 to f64
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[A]], %[[B]] : f64
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[PRODUCT]], %{{.*}} : f64
// CHECK: %[[ODD:.*]] = arith.bitcast %{{.*}} : i64 to f64
// CHECK-NEXT: arith.truncf %[[ODD]] : f64 to f32
