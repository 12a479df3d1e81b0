// RUN: cpu translate
// The LLVM dialect becomes the text of LLVM IR.

llvm.func @kcache_run(%x: f32) -> f32 {
  %0 = llvm.mlir.constant(1.5 : f32) : f32
  %1 = llvm.fadd %x, %0 : f32
  llvm.return %1 : f32
}

// CHECK-LABEL: define float @kcache_run(float %0)
// CHECK-NEXT: %[[SUM:.*]] = fadd float %0, 1.500000e+00
// CHECK-NEXT: ret float %[[SUM]]

// -----
// An operation of another dialect is unsupported; LLVM's translation would end the process.

func.func @main() {
  return
}

// CHECK: error: UnsupportedOp: unsupported op func.func
// CHECK-SAME: no code is generated for it
