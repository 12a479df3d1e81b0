// RUN: nvidia signature..launches
// A matrix multiplication of f16 is a kernel with MMA tiles: operand tiles are copied to shared memory asynchronously and
// multiplied by tensor cores.

func.func @main(%a: tensor<256x256xf16>, %b: tensor<256x256xf16>) -> tensor<256x256xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<256x256xf16>, tensor<256x256xf16>) -> tensor<256x256xf32>
  return %0 : tensor<256x256xf32>
}

// CHECK-LABEL: func.func @launch_0
// CHECK: llvm.nvvm.cp.async.cg.shared.global.16
// CHECK: llvm.nvvm.cp.async.commit.group
// CHECK: scf.for
// CHECK: llvm.nvvm.cp.async.wait.group
// CHECK: llvm.nvvm.barrier.cta.sync.aligned.all
// CHECK: llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16
// CHECK: llvm.nvvm.mma.m16n8k16.row.col.f32.f32
// CHECK: // gpu_launches: [GpuLaunch(name='launch_0', ops=('contraction'
