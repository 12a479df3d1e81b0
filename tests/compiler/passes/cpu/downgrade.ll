; RUN: cpu downgrade
; MLIR's LLVM prints float literals that llvmlite's older LLVM does not read: they become hexadecimal literals of the same
; bits. Attributes of declared intrinsics are dropped.

declare float @llvm.sqrt.f32(float) #0

define float @kcache_run(float %x) {
  %1 = fadd float %x, 1.000000e-01
  %2 = fcmp oeq float %1, +inf
  ret float %1
}

attributes #0 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }

; CHECK: declare float @llvm.sqrt.f32(float)
; CHECK-NOT: #0
; CHECK: fadd float %x, 0x3FB99999A0000000
; CHECK-NEXT: fcmp oeq float %1, 0x7FF0000000000000
; CHECK-NOT: attributes
