// RUN: cpu fma target=x86-64-v3
// A target with FMA instructions keeps the operation.

func.func @main(%a: f32, %b: f32, %c: f32) -> f32 {
  %0 = math.fma %a, %b, %c : f32
  return %0 : f32
}

// CHECK: math.fma %arg0, %arg1, %arg2 : f32
// CHECK-NEXT: return
