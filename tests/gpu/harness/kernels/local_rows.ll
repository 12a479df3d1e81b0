; y[row] = x[row] reversed; rows of 4, a thread each, through a local array

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x() #0

define ptx_kernel void @local_rows(ptr noalias readonly align 16 %x, ptr noalias align 16 %y) {
  %array = alloca float, i64 4, align 16
  %t32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %t = zext i32 %t32 to i64
  %first = mul i64 %t, 4
  br label %loop

loop:
  %i = phi i64 [ 0, %0 ], [ %next, %loop ]
  %at = add i64 %first, %i
  %from = getelementptr float, ptr %x, i64 %at
  %value = load float, ptr %from, align 4
  %last = sub i64 3, %i
  %place = getelementptr float, ptr %array, i64 %last
  store float %value, ptr %place, align 4
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 4
  br i1 %more, label %loop, label %end

end:
  %row = load <4 x float>, ptr %array, align 16
  %to = getelementptr float, ptr %y, i64 %first
  store <4 x float> %row, ptr %to, align 16
  ret void
}

attributes #0 = { nounwind }
