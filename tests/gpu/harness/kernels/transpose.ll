; y[n, m] = x[m, n] by tiles of 32 x 32 in shared memory whose rows are 33 long; 32 x 8 threads
@tile = internal addrspace(3) global [32 x [33 x float]] undef, align 4

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x() #0
declare i32 @llvm.nvvm.read.ptx.sreg.tid.y() #0
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #0
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y() #0
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) #0

define ptx_kernel void @transpose(ptr noalias readonly align 16 %x, ptr noalias align 16 %y, i64 %rows, i64 %columns) {
entry:
  %tx32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ty32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %bx32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %by32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %tx = zext i32 %tx32 to i64
  %ty = zext i32 %ty32 to i64
  %bx = zext i32 %bx32 to i64
  %by = zext i32 %by32 to i64
  %column0 = mul i64 %bx, 32
  %row0 = mul i64 %by, 32
  %column = add i64 %column0, %tx
  %column_in = icmp slt i64 %column, %columns
  %generic = addrspacecast ptr addrspace(3) @tile to ptr
  br label %load_head

load_head:
  %i = phi i64 [ %ty, %entry ], [ %i_next, %load_next ]
  %load_more = icmp slt i64 %i, 32
  br i1 %load_more, label %load_test, label %loaded

load_test:
  %row = add i64 %row0, %i
  %row_in = icmp slt i64 %row, %rows
  %in = and i1 %row_in, %column_in
  br i1 %in, label %load, label %load_next

load:
  %line = mul i64 %row, %columns
  %at = add i64 %line, %column
  %from = getelementptr float, ptr %x, i64 %at
  %value = load float, ptr %from, align 4
  %to = getelementptr [32 x [33 x float]], ptr %generic, i64 0, i64 %i, i64 %tx
  store float %value, ptr %to, align 4
  br label %load_next

load_next:
  %i_next = add i64 %i, 8
  br label %load_head

loaded:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0) ; first barrier
  %out_column = add i64 %row0, %tx
  %out_column_in = icmp slt i64 %out_column, %rows
  br label %store_head

store_head:
  %j = phi i64 [ %ty, %loaded ], [ %j_next, %store_next ]
  %store_more = icmp slt i64 %j, 32
  br i1 %store_more, label %store_test, label %end

store_test:
  %out_row = add i64 %column0, %j
  %out_row_in = icmp slt i64 %out_row, %columns
  %out = and i1 %out_row_in, %out_column_in
  br i1 %out, label %store, label %store_next

store:
  %here = getelementptr [32 x [33 x float]], ptr addrspace(3) @tile, i64 0, i64 %tx, i64 %j
  %turned = load float, ptr addrspace(3) %here, align 4
  %out_line = mul i64 %out_row, %rows
  %out_at = add i64 %out_line, %out_column
  %there = getelementptr float, ptr %y, i64 %out_at
  store float %turned, ptr %there, align 4
  br label %store_next

store_next:
  %j_next = add i64 %j, 8
  br label %store_head

end:
  ret void
}

attributes #0 = { nounwind }
