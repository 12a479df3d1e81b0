; y[row] = x[row] turned by one plus its first element; rows of 32, a warp each, through shared memory written twice
@rows = internal addrspace(3) global [4 x [32 x float]] undef, align 16

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x() #0
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #0
declare void @llvm.nvvm.bar.warp.sync(i32) #0

define ptx_kernel void @warp_rows(ptr noalias readonly align 16 %x, ptr noalias align 16 %y) {
  %t32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %t = zext i32 %t32 to i64
  %b = zext i32 %b32 to i64
  %base = mul i64 %b, 128
  %i = add i64 %base, %t
  %warp = lshr i64 %t, 5
  %lane = and i64 %t, 31
  %up = add i64 %lane, 1
  %next = and i64 %up, 31
  %from = getelementptr float, ptr %x, i64 %i
  %to = getelementptr float, ptr %y, i64 %i
  %mine = getelementptr [4 x [32 x float]], ptr addrspace(3) @rows, i64 0, i64 %warp, i64 %lane
  %other = getelementptr [4 x [32 x float]], ptr addrspace(3) @rows, i64 0, i64 %warp, i64 %next
  %row = getelementptr [4 x [32 x float]], ptr addrspace(3) @rows, i64 0, i64 %warp, i64 0
  %value = load float, ptr %from, align 4
  store float %value, ptr addrspace(3) %mine, align 4
  call void @llvm.nvvm.bar.warp.sync(i32 -1) ; first
  %turned = load float, ptr addrspace(3) %other, align 4
  %head = load float, ptr addrspace(3) %row, align 4
  call void @llvm.nvvm.bar.warp.sync(i32 -1) ; second
  %sum = fadd float %turned, %head
  store float %sum, ptr addrspace(3) %mine, align 4
  store float %sum, ptr %to, align 4
  ret void
}

attributes #0 = { convergent nounwind }
