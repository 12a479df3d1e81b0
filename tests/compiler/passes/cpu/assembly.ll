; RUN: cpu optimize..assembly
; The optimized IR becomes assembly for the target: x86-64-v3 has fused multiply-add.

target triple = "x86_64-unknown-linux-gnu"
declare float @llvm.fma.f32(float, float, float)
define float @kcache_run(float %x) {
  %1 = call float @llvm.fma.f32(float %x, float %x, float %x)
  ret float %1
}

; BEFORE: call float @llvm.fma.f32
; CHECK-LABEL: kcache_run:
; CHECK: vfmadd231ss {{.*}}%xmm0, %xmm0, %xmm0
; CHECK: retq
