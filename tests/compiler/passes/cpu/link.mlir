// RUN: cpu signature..link
// The object is linked with what it calls into a shared object. It exports the C ABI of a kernel and imports nothing.

func.func @main(%a: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = stablehlo.negate %a : tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// BEFORE: // object code: ELF relocatable
// BEFORE-NOT: shared object
// CHECK: // shared object: exports ['kcache_abi', {{.*}}'kcache_run'], imports []
