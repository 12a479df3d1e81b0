// RUN: nvidia signature..optimize
// LLVM's optimizer runs without its vectorizers. The comparison of the index with the number of elements becomes one of
// the block's number.

func.func @main(%a: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = stablehlo.negate %a : tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// BEFORE: icmp slt i64 %{{.*}}, 4096
// CHECK: define ptx_kernel void @launch_0
// CHECK: %[[BLOCK:.*]] = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
// CHECK-NEXT: icmp samesign ult i32 %[[BLOCK]], 4
