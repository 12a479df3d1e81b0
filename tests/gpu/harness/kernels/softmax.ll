; y[row] = softmax(x[row]), one block of 128 threads a row, rows of n
@maxima = internal addrspace(3) global [4 x float] undef, align 4
@sums = internal addrspace(3) global [4 x float] undef, align 4

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x() #0
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #0
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32) #0
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) #0
declare float @llvm.nvvm.ex2.approx.f(float) #0
declare float @llvm.maxnum.f32(float, float)

define internal float @warp_max(float %x) {
  %s16 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %x, i32 16, i32 31)
  %m16 = call float @llvm.maxnum.f32(float %x, float %s16)
  %s8 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %m16, i32 8, i32 31)
  %m8 = call float @llvm.maxnum.f32(float %m16, float %s8)
  %s4 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %m8, i32 4, i32 31)
  %m4 = call float @llvm.maxnum.f32(float %m8, float %s4)
  %s2 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %m4, i32 2, i32 31)
  %m2 = call float @llvm.maxnum.f32(float %m4, float %s2)
  %s1 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %m2, i32 1, i32 31)
  %m1 = call float @llvm.maxnum.f32(float %m2, float %s1)
  ret float %m1
}

define internal float @warp_sum(float %x) {
  %s16 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %x, i32 16, i32 31)
  %m16 = fadd float %x, %s16
  %s8 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %m16, i32 8, i32 31)
  %m8 = fadd float %m16, %s8
  %s4 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %m8, i32 4, i32 31)
  %m4 = fadd float %m8, %s4
  %s2 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %m4, i32 2, i32 31)
  %m2 = fadd float %m4, %s2
  %s1 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %m2, i32 1, i32 31)
  %m1 = fadd float %m2, %s1
  ret float %m1
}

define ptx_kernel void @softmax(ptr noalias readonly align 16 %x, ptr noalias align 16 %y, i64 %n) {
entry:
  %t32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %row32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %t = zext i32 %t32 to i64
  %row = zext i32 %row32 to i64
  %warp = lshr i64 %t, 5
  %lane = and i64 %t, 31
  %first = icmp eq i64 %lane, 0
  %start = mul i64 %row, %n
  %xr = getelementptr float, ptr %x, i64 %start
  %yr = getelementptr float, ptr %y, i64 %start
  br label %max_head

max_head:
  %i = phi i64 [ %t, %entry ], [ %i_next, %max_body ]
  %m = phi float [ 0xFFF0000000000000, %entry ], [ %m_next, %max_body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %max_body, label %max_end

max_body:
  %pi = getelementptr float, ptr %xr, i64 %i
  %vi = load float, ptr %pi, align 4
  %m_next = call float @llvm.maxnum.f32(float %m, float %vi)
  %i_next = add i64 %i, 128
  br label %max_head

max_end:
  %wm = call float @warp_max(float %m)
  br i1 %first, label %max_store, label %max_join

max_store:
  %slot = getelementptr float, ptr addrspace(3) @maxima, i64 %warp
  store float %wm, ptr addrspace(3) %slot, align 4
  br label %max_join

max_join:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0) ; first barrier
  %m0 = load float, ptr addrspace(3) @maxima, align 4
  %m1 = load float, ptr addrspace(3) getelementptr inbounds (float, ptr addrspace(3) @maxima, i64 1), align 4
  %m2 = load float, ptr addrspace(3) getelementptr inbounds (float, ptr addrspace(3) @maxima, i64 2), align 4
  %m3 = load float, ptr addrspace(3) getelementptr inbounds (float, ptr addrspace(3) @maxima, i64 3), align 4
  %m01 = call float @llvm.maxnum.f32(float %m0, float %m1)
  %m23 = call float @llvm.maxnum.f32(float %m2, float %m3)
  %top = call float @llvm.maxnum.f32(float %m01, float %m23)
  br label %sum_head

sum_head:
  %j = phi i64 [ %t, %max_join ], [ %j_next, %sum_body ]
  %s = phi float [ 0.0, %max_join ], [ %s_next, %sum_body ]
  %more_j = icmp slt i64 %j, %n
  br i1 %more_j, label %sum_body, label %sum_end

sum_body:
  %pj = getelementptr float, ptr %xr, i64 %j
  %vj = load float, ptr %pj, align 4
  %dj = fsub float %vj, %top
  %lj = fmul float %dj, 0x3FF7154760000000
  %ej = call float @llvm.nvvm.ex2.approx.f(float %lj)
  %s_next = fadd float %s, %ej
  %j_next = add i64 %j, 128
  br label %sum_head

sum_end:
  %ws = call float @warp_sum(float %s)
  br i1 %first, label %sum_store, label %sum_join

sum_store:
  %sum_slot = getelementptr float, ptr addrspace(3) @sums, i64 %warp
  store float %ws, ptr addrspace(3) %sum_slot, align 4
  br label %sum_join

sum_join:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0) ; second barrier
  %q = load <4 x float>, ptr addrspace(3) @sums, align 4
  %q0 = extractelement <4 x float> %q, i32 0
  %q1 = extractelement <4 x float> %q, i32 1
  %q2 = extractelement <4 x float> %q, i32 2
  %q3 = extractelement <4 x float> %q, i32 3
  %q01 = fadd float %q0, %q1
  %q23 = fadd float %q2, %q3
  %total = fadd float %q01, %q23
  br label %out_head

out_head:
  %k = phi i64 [ %t, %sum_join ], [ %k_next, %out_body ]
  %more_k = icmp slt i64 %k, %n
  br i1 %more_k, label %out_body, label %end

out_body:
  %pk = getelementptr float, ptr %xr, i64 %k
  %vk = load float, ptr %pk, align 4
  %dk = fsub float %vk, %top
  %lk = fmul float %dk, 0x3FF7154760000000
  %ek = call float @llvm.nvvm.ex2.approx.f(float %lk)
  %rk = fdiv float %ek, %total
  %qk = getelementptr float, ptr %yr, i64 %k
  store float %rk, ptr %qk, align 4
  %k_next = add i64 %k, 128
  br label %out_head

end:
  ret void
}

attributes #0 = { convergent nounwind }
