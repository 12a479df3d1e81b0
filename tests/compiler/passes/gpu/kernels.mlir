// RUN: nvidia signature..kernels
// Kernels get the calling convention of PTX kernels and the number of threads of their blocks.

func.func @main(%a: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = stablehlo.negate %a : tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// BEFORE: llvm.func @launch_0
// CHECK: llvm.func ptx_kernelcc @launch_0
// CHECK-SAME: attributes {no_unwind, passthrough = {{\[\[}}"nvvm.reqntid", "256,1,1"{{\]\]}}}
