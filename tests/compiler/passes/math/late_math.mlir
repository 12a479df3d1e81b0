// RUN: cpu late-math
// `math` leaves the calls of a program that has very many of them; `late-math` expands them once equal launches are
// one function. Without such calls it changes nothing.

func.func private @kcm_exp_f32(f32) -> f32
func.func @main(%x: f32) -> f32 {
  %y = func.call @kcm_exp_f32(%x) : (f32) -> f32
  return %y : f32
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: call
// CHECK: math.fma
// CHECK: return
// CHECK-NOT: kcm_
