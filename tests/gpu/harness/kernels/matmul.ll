; c[m, n] (f32) = a[m, k] b[k, n] (f16): 32 x 8 a block of two warps, 16 of k a step, three stages of cp.async
@stages = external addrspace(3) global [0 x i8], align 16

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x() #0
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #0
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y() #0
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) #0
declare void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) noalias writeonly, ptr addrspace(1) noalias readonly) #0
declare void @llvm.nvvm.cp.async.commit.group() #0
declare void @llvm.nvvm.cp.async.wait.group(i32 immarg) #0
declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) readonly captures(none)) #0
declare { i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.trans.b16.p3(ptr addrspace(3) readonly captures(none)) #0
declare { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.f32.f32(<2 x half>, <2 x half>, <2 x half>, <2 x half>, <2 x half>, <2 x half>, float, float, float, float) #0

; stage %s of both operands: 16 bytes of a by each thread, of b by the first 16
define internal void @fetch(i64 %s, ptr %a, ptr %b, i64 %row0, i64 %column0, i64 %n, i64 %k, i64 %steps, i64 %t) {
  %wanted = icmp slt i64 %s, %steps
  br i1 %wanted, label %fetch_a, label %done

fetch_a:
  %slot = urem i64 %s, 3
  %k0 = mul i64 %s, 16
  %r = lshr i64 %t, 1
  %half = and i64 %t, 1
  %eight = mul i64 %half, 8
  %row = add i64 %row0, %r
  %line = mul i64 %row, %k
  %kk = add i64 %k0, %eight
  %at = add i64 %line, %kk
  %from = getelementptr half, ptr %a, i64 %at
  %from1 = addrspacecast ptr %from to ptr addrspace(1)
  %slot_a = mul i64 %slot, 1024
  %place = mul i64 %t, 16
  %offset = add i64 %slot_a, %place
  %to = getelementptr i8, ptr addrspace(3) @stages, i64 %offset
  call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %to, ptr addrspace(1) %from1)
  %of_b = icmp ult i64 %t, 16
  br i1 %of_b, label %fetch_b, label %done

fetch_b:
  %row_b = add i64 %k0, %t
  %line_b = mul i64 %row_b, %n
  %at_b = add i64 %line_b, %column0
  %from_b = getelementptr half, ptr %b, i64 %at_b
  %from_b1 = addrspacecast ptr %from_b to ptr addrspace(1)
  %slot_b = mul i64 %slot, 256
  %place_b = mul i64 %t, 16
  %offset_b = add i64 %slot_b, %place_b
  %offset_b1 = add i64 %offset_b, 3072
  %to_b = getelementptr i8, ptr addrspace(3) @stages, i64 %offset_b1
  call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %to_b, ptr addrspace(1) %from_b1)
  br label %done

done:
  call void @llvm.nvvm.cp.async.commit.group()
  ret void
}

define ptx_kernel void @matmul(ptr noalias readonly align 16 %a, ptr noalias readonly align 16 %b, ptr noalias align 16 %c, i64 %n, i64 %k) {
entry:
  %t32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %bx32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %by32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %t = zext i32 %t32 to i64
  %bx = zext i32 %bx32 to i64
  %by = zext i32 %by32 to i64
  %row0 = mul i64 %by, 32
  %column0 = mul i64 %bx, 8
  %steps = udiv i64 %k, 16
  %warp = lshr i64 %t, 5
  %lane = and i64 %t, 31
  call void @fetch(i64 0, ptr %a, ptr %b, i64 %row0, i64 %column0, i64 %n, i64 %k, i64 %steps, i64 %t)
  call void @fetch(i64 1, ptr %a, ptr %b, i64 %row0, i64 %column0, i64 %n, i64 %k, i64 %steps, i64 %t)
  br label %head

head:
  %s = phi i64 [ 0, %entry ], [ %s_next, %body ]
  %c0 = phi float [ 0.0, %entry ], [ %d0, %body ]
  %c1 = phi float [ 0.0, %entry ], [ %d1, %body ]
  %c2 = phi float [ 0.0, %entry ], [ %d2, %body ]
  %c3 = phi float [ 0.0, %entry ], [ %d3, %body ]
  %more = icmp slt i64 %s, %steps
  br i1 %more, label %body, label %out

body:
  call void @llvm.nvvm.cp.async.wait.group(i32 1)
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0) ; first barrier
  %ahead = add i64 %s, 2
  call void @fetch(i64 %ahead, ptr %a, ptr %b, i64 %row0, i64 %column0, i64 %n, i64 %k, i64 %steps, i64 %t)
  %slot = urem i64 %s, 3
  %slot_a = mul i64 %slot, 1024
  %warp_a = mul i64 %warp, 512
  %row_a = and i64 %lane, 15
  %row_bytes = mul i64 %row_a, 32
  %side = lshr i64 %lane, 4
  %side_bytes = mul i64 %side, 16
  %o1 = add i64 %slot_a, %warp_a
  %o2 = add i64 %o1, %row_bytes
  %o3 = add i64 %o2, %side_bytes
  %pa = getelementptr i8, ptr addrspace(3) @stages, i64 %o3
  %fa = call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %pa)
  %slot_b = mul i64 %slot, 256
  %row_b = mul i64 %row_a, 16
  %q1 = add i64 %slot_b, %row_b
  %q2 = add i64 %q1, 3072
  %pb = getelementptr i8, ptr addrspace(3) @stages, i64 %q2
  %fb = call { i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.trans.b16.p3(ptr addrspace(3) %pb)
  %a0i = extractvalue { i32, i32, i32, i32 } %fa, 0
  %a1i = extractvalue { i32, i32, i32, i32 } %fa, 1
  %a2i = extractvalue { i32, i32, i32, i32 } %fa, 2
  %a3i = extractvalue { i32, i32, i32, i32 } %fa, 3
  %b0i = extractvalue { i32, i32 } %fb, 0
  %b1i = extractvalue { i32, i32 } %fb, 1
  %a0 = bitcast i32 %a0i to <2 x half>
  %a1 = bitcast i32 %a1i to <2 x half>
  %a2 = bitcast i32 %a2i to <2 x half>
  %a3 = bitcast i32 %a3i to <2 x half>
  %b0 = bitcast i32 %b0i to <2 x half>
  %b1 = bitcast i32 %b1i to <2 x half>
  %d = call { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.f32.f32(<2 x half> %a0, <2 x half> %a1, <2 x half> %a2, <2 x half> %a3, <2 x half> %b0, <2 x half> %b1, float %c0, float %c1, float %c2, float %c3)
  %d0 = extractvalue { float, float, float, float } %d, 0
  %d1 = extractvalue { float, float, float, float } %d, 1
  %d2 = extractvalue { float, float, float, float } %d, 2
  %d3 = extractvalue { float, float, float, float } %d, 3
  %s_next = add i64 %s, 1
  br label %head

out:
  %group = lshr i64 %lane, 2
  %within = and i64 %lane, 3
  %pair = mul i64 %within, 2
  %warp_row = mul i64 %warp, 16
  %r1 = add i64 %row0, %warp_row
  %r2 = add i64 %r1, %group
  %r3 = add i64 %r2, 8
  %column = add i64 %column0, %pair
  %l2 = mul i64 %r2, %n
  %l3 = mul i64 %r3, %n
  %at2 = add i64 %l2, %column
  %at3 = add i64 %l3, %column
  %p2 = getelementptr float, ptr %c, i64 %at2
  %p3 = getelementptr float, ptr %c, i64 %at3
  %v2 = insertelement <2 x float> poison, float %c0, i32 0
  %w2 = insertelement <2 x float> %v2, float %c1, i32 1
  %v3 = insertelement <2 x float> poison, float %c2, i32 0
  %w3 = insertelement <2 x float> %v3, float %c3, i32 1
  store <2 x float> %w2, ptr %p2, align 8
  store <2 x float> %w3, ptr %p3, align 8
  ret void
}

attributes #0 = { convergent nounwind }
