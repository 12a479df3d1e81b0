// RUN: nvidia signature..assembler
// `ptxas` is started while LLVM works, where it is installed; the IR stays as it is.

func.func @main(%a: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = stablehlo.negate %a : tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// BEFORE-NOT: assembler
// CHECK: define ptx_kernel void @launch_0
// CHECK: // assembler: running
