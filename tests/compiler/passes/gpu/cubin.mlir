// RUN: nvidia signature..cubin
// `ptxas` assembles the PTX: the object code is a cubin (machine 190: CUDA), and each launch knows the registers
// and the shared memory that it takes.

func.func @main(%a: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = stablehlo.negate %a : tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// CHECK: resources=GpuResources(registers={{[0-9]+}}, spill_bytes=0
// CHECK: // object code: ELF executable for machine 190
