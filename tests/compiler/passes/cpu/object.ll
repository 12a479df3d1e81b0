; RUN: cpu optimize..object
; The assembly becomes a relocatable object file of the target's machine (62: x86-64).

target triple = "x86_64-unknown-linux-gnu"
define i32 @kcache_run(i32 %x) {
  ret i32 %x
}

; BEFORE-NOT: object code
; CHECK: // object code: ELF relocatable for machine 62
