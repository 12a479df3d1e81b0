; c = a + b, 256 threads a block, one element a thread
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x() #0
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #0

define ptx_kernel void @vector_add(ptr noalias readonly align 16 %a, ptr noalias readonly align 16 %b, ptr noalias align 16 %c, i64 %n) #1 {
  %t32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %t = zext i32 %t32 to i64
  %blk = zext i32 %b32 to i64
  %base = mul i64 %blk, 256
  %i = add i64 %base, %t
  %inside = icmp slt i64 %i, %n
  br i1 %inside, label %do, label %end

do:
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %pc = getelementptr float, ptr %c, i64 %i
  %va = load float, ptr %pa, align 4
  %vb = load float, ptr %pb, align 4
  %sum = fadd contract float %va, %vb
  store float %sum, ptr %pc, align 4
  br label %end

end:
  ret void
}

attributes #0 = { nounwind }
attributes #1 = { "nvvm.maxntid"="256,1,1" "target-cpu"="sm_80" }
