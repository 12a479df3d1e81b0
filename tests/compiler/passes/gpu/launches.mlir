// RUN: nvidia signature..launches
// Each launch is a kernel of its own, with its grid and block in the interface; an elementwise kernel has a grid-stride
// loop over vectors of elements.

func.func @main(%a: tensor<4096x64xf32>, %b: tensor<4096x64xf32>) -> tensor<4096x64xf32> {
  %0 = stablehlo.add %a, %b : tensor<4096x64xf32>
  return %0 : tensor<4096x64xf32>
}

// CHECK-LABEL: func.func @launch_0
// CHECK: llvm.call_intrinsic "llvm.nvvm.read.ptx.sreg.ctaid.x"()
// CHECK: scf.if
// CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK-COUNT-4: arith.addf
// CHECK: llvm.store %{{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr
// CHECK: // gpu_launches: [GpuLaunch(name='launch_0'
// CHECK-SAME: grid=('256', '1', '1'), block=(256, 1, 1)
