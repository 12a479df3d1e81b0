// RUN: cpu complex-numbers
// Operations on complex scalars, which occur in bodies of reductions and in programs that are linalg, become calls of
// the math library: a function for the real part, and one for the imaginary part.

func.func @main(%x: complex<f32>, %y: complex<f32>) -> complex<f32> {
  %0 = complex.div %x, %y : complex<f32>
  return %0 : complex<f32>
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: complex.div
// CHECK: %[[REAL:.*]] = call @kcm_complex_divide_re_f32(%0, %1, %2, %3)
// CHECK-NEXT: %[[IMAGINARY:.*]] = call @kcm_complex_divide_im_f32(%0, %1, %2, %3)
// CHECK-NEXT: complex.create %[[REAL]], %[[IMAGINARY]] : complex<f32>
