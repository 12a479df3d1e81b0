// RUN: cpu math-on-f32
// Exact math operations on half precision values are done in f32. `math.round` (half away from zero) becomes a
// truncation and a step, for every type.

func.func @main(%x: f16, %y: f32) -> (f16, f32) {
  %0 = math.floor %x : f16
  %1 = math.round %y : f32
  return %0, %1 : f16, f32
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[WIDE:.*]] = arith.extf %arg0 : f16 to f32
// CHECK-NEXT: %[[FLOOR:.*]] = math.floor %[[WIDE]] : f32
// CHECK-NEXT: arith.truncf %[[FLOOR]] : f32 to f16
// CHECK-NOT: math.round
// CHECK: %[[WHOLE:.*]] = math.trunc %arg1 : f32
// CHECK: %[[UP:.*]] = arith.cmpf oge, %{{.*}}, %cst : f32
// CHECK: %[[STEP:.*]] = math.copysign %{{.*}}, %arg1 : f32
// CHECK: %[[NEXT:.*]] = arith.addf %[[WHOLE]], %[[STEP]] : f32
// CHECK-NEXT: arith.select %[[UP]], %[[NEXT]], %[[WHOLE]] : f32
