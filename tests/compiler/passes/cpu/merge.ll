; RUN: cpu merge
; Internal functions that are equal except for their names are one, and so are those that call them.

define void @kcache_run(ptr %0) #0 {
  call void @launch_0_task(ptr %0)
  call void @launch_1_task(ptr %0)
  call void @launch_2_task(ptr %0)
  ret void
}

define internal void @launch_0_task(ptr %0) #0 {
  call void @launch_0_rows(ptr %0)
  ret void
}

define internal void @launch_0_rows(ptr %0) #0 {
  store i64 3, ptr %0, align 8
  ret void
}

define internal void @launch_1_task(ptr %0) #0 {
  call void @launch_1_rows(ptr %0)
  ret void
}

define internal void @launch_1_rows(ptr %0) #0 {
  store i64 3, ptr %0, align 8
  ret void
}

define internal void @launch_2_task(ptr %0) #0 {
  call void @launch_2_rows(ptr %0)
  ret void
}

define internal void @launch_2_rows(ptr %0) #0 {
  store i64 4, ptr %0, align 8
  ret void
}

attributes #0 = { nounwind }

; CHECK-LABEL: define void @kcache_run
; CHECK-NEXT: call void @launch_0_task
; CHECK-NEXT: call void @launch_0_task
; CHECK-NEXT: call void @launch_2_task
; CHECK: define internal void @launch_0_rows
; CHECK-NOT: @launch_1
; CHECK: define internal void @launch_2_rows
