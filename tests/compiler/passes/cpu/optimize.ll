; RUN: cpu optimize
; LLVM's optimizer runs at the level of the options: two multiplications by powers of two become one shift.

target triple = "x86_64-unknown-linux-gnu"
define i32 @kcache_run(i32 %x) {
  %1 = mul i32 %x, 4
  %2 = mul i32 %1, 2
  ret i32 %2
}

; CHECK: define {{.*}} i32 @kcache_run(i32 %x)
; CHECK-NEXT: %[[SHIFTED:.*]] = shl i32 %x, 3
; CHECK-NEXT: ret i32 %[[SHIFTED]]
