; RUN: cpu optimize..object target=aarch64
; The same for AArch64 (machine 183).

target triple = "aarch64-unknown-linux-gnu"
define i32 @kcache_run(i32 %x) {
  ret i32 %x
}

; CHECK: // object code: ELF relocatable for machine 183
