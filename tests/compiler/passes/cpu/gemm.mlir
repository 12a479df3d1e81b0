// RUN: cpu signature..launches
// A matrix multiplication becomes calls of a library function, which is compiled once for each element type and target:
// B is packed into panels, then blocks of A are multiplied with them by a register-tiled micro-kernel. An elementwise consumer is
// applied to the tile of the result (epilogue).

func.func @main(%a: tensor<256x256xf32>, %b: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %1 = stablehlo.negate %0 : tensor<256x256xf32>
  return %1 : tensor<256x256xf32>
}

// CHECK-LABEL: func.func private @launch_0
// CHECK: llvm.call @gemm_f32_f32_f32_f32_run(%arg0, %arg1
// CHECK-LABEL: func.func private @launch_0_rows
// CHECK: arith.negf
// CHECK: llvm.func @gemm_f32_f32_f32_f32_run
// CHECK: // launches: [Launch(name='launch_0', ops=('contraction', 'arith.negf')
// CHECK-NEXT: // workspace: ('*', 'workers', 524288)
