// RUN: cpu half-conversions target=x86-64-v2
// x86-64-v2 has no F16C instructions: conversions between f16 and f32 are integer arithmetic on the bits. Conversions of
// bf16 are shifts, which the code generator makes itself.

func.func @main(%x: f16, %y: bf16) -> (f32, f32) {
  %0 = arith.extf %x : f16 to f32
  %1 = arith.extf %y : bf16 to f32
  return %0, %1 : f32, f32
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: f16 to f32
// CHECK: %[[BITS:.*]] = arith.bitcast %arg0 : f16 to i16
// CHECK: %[[SUBNORMAL:.*]] = arith.subf %{{.*}}, %{{.*}} : f32
// CHECK: %[[RESULT:.*]] = arith.bitcast %{{.*}} : i32 to f32
// CHECK-NEXT: %[[OTHER:.*]] = arith.extf %arg1 : bf16 to f32
// CHECK-NEXT: return %[[RESULT]], %[[OTHER]]
