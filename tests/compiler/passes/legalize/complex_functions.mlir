// RUN: cpu complex-functions
// A function of complex tensors becomes a `linalg.generic` that calls the math library once for each component.

func.func @main(%z: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %0 = stablehlo.exponential %z : tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: stablehlo.exponential
// CHECK: %[[RE:.*]] = complex.re %in
// CHECK-NEXT: %[[IM:.*]] = complex.im %in
// CHECK-NEXT: %[[REAL:.*]] = func.call @kcm_complex_exp_re_f32(%[[RE]], %[[IM]]) : (f32, f32) -> f32
// CHECK-NEXT: %[[IMAGINARY:.*]] = func.call @kcm_complex_exp_im_f32(%[[RE]], %[[IM]]) : (f32, f32) -> f32
// CHECK-NEXT: complex.create %[[REAL]], %[[IMAGINARY]] : complex<f32>
// CHECK: func.func private @kcm_complex_exp_re_f32(f32, f32) -> f32
// CHECK: func.func private @kcm_complex_exp_im_f32(f32, f32) -> f32
