// RUN: cpu interleave
// LLVM interleaves four vectors of innermost loops whose bodies are long and contiguous. Short bodies, few iterations, and
// accesses that are not contiguous are left alone.

func.func @long(%x: !llvm.ptr, %y: !llvm.ptr, %n: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  scf.for %i = %zero to %n step %one : i64 {
    %place = arith.addi %i, %n : i64
    %p = llvm.getelementptr %x[%place] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %0 = llvm.load %p : !llvm.ptr -> f32
    %1 = arith.mulf %0, %0 : f32
    %2 = arith.mulf %1, %1 : f32
    %3 = arith.mulf %2, %2 : f32
    %4 = arith.mulf %3, %3 : f32
    %5 = arith.mulf %4, %4 : f32
    %6 = arith.mulf %5, %5 : f32
    %7 = arith.mulf %6, %6 : f32
    %8 = arith.mulf %7, %7 : f32
    %9 = arith.mulf %8, %8 : f32
    %10 = arith.mulf %9, %9 : f32
    %11 = arith.mulf %10, %10 : f32
    %12 = arith.mulf %11, %11 : f32
    %13 = arith.mulf %12, %12 : f32
    %14 = arith.mulf %13, %13 : f32
    %15 = arith.mulf %14, %14 : f32
    %16 = arith.mulf %15, %15 : f32
    %17 = arith.mulf %16, %16 : f32
    %18 = arith.mulf %17, %17 : f32
    %19 = arith.mulf %18, %18 : f32
    %20 = arith.mulf %19, %19 : f32
    %21 = arith.mulf %20, %20 : f32
    %22 = arith.mulf %21, %21 : f32
    %23 = arith.mulf %22, %22 : f32
    %24 = arith.mulf %23, %23 : f32
    %25 = arith.mulf %24, %24 : f32
    %26 = arith.mulf %25, %25 : f32
    %27 = arith.mulf %26, %26 : f32
    %28 = arith.mulf %27, %27 : f32
    %q = llvm.getelementptr %y[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    llvm.store %28, %q : f32, !llvm.ptr
  }
  return
}
func.func @strided(%x: !llvm.ptr, %y: !llvm.ptr, %n: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  scf.for %i = %zero to %n step %one : i64 {
    %place = arith.muli %i, %n : i64
    %p = llvm.getelementptr %x[%place] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %0 = llvm.load %p : !llvm.ptr -> f32
    %1 = arith.mulf %0, %0 : f32
    %2 = arith.mulf %1, %1 : f32
    %3 = arith.mulf %2, %2 : f32
    %4 = arith.mulf %3, %3 : f32
    %5 = arith.mulf %4, %4 : f32
    %6 = arith.mulf %5, %5 : f32
    %7 = arith.mulf %6, %6 : f32
    %8 = arith.mulf %7, %7 : f32
    %9 = arith.mulf %8, %8 : f32
    %10 = arith.mulf %9, %9 : f32
    %11 = arith.mulf %10, %10 : f32
    %12 = arith.mulf %11, %11 : f32
    %13 = arith.mulf %12, %12 : f32
    %14 = arith.mulf %13, %13 : f32
    %15 = arith.mulf %14, %14 : f32
    %16 = arith.mulf %15, %15 : f32
    %17 = arith.mulf %16, %16 : f32
    %18 = arith.mulf %17, %17 : f32
    %19 = arith.mulf %18, %18 : f32
    %20 = arith.mulf %19, %19 : f32
    %21 = arith.mulf %20, %20 : f32
    %22 = arith.mulf %21, %21 : f32
    %23 = arith.mulf %22, %22 : f32
    %24 = arith.mulf %23, %23 : f32
    %25 = arith.mulf %24, %24 : f32
    %26 = arith.mulf %25, %25 : f32
    %27 = arith.mulf %26, %26 : f32
    %28 = arith.mulf %27, %27 : f32
    %q = llvm.getelementptr %y[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    llvm.store %28, %q : f32, !llvm.ptr
  }
  return
}
func.func @few(%x: !llvm.ptr, %y: !llvm.ptr) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %n = arith.constant 24 : i64
  scf.for %i = %zero to %n step %one : i64 {
    %p = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %0 = llvm.load %p : !llvm.ptr -> f32
    %1 = arith.mulf %0, %0 : f32
    %2 = arith.mulf %1, %1 : f32
    %3 = arith.mulf %2, %2 : f32
    %4 = arith.mulf %3, %3 : f32
    %5 = arith.mulf %4, %4 : f32
    %6 = arith.mulf %5, %5 : f32
    %7 = arith.mulf %6, %6 : f32
    %8 = arith.mulf %7, %7 : f32
    %9 = arith.mulf %8, %8 : f32
    %10 = arith.mulf %9, %9 : f32
    %11 = arith.mulf %10, %10 : f32
    %12 = arith.mulf %11, %11 : f32
    %13 = arith.mulf %12, %12 : f32
    %14 = arith.mulf %13, %13 : f32
    %15 = arith.mulf %14, %14 : f32
    %16 = arith.mulf %15, %15 : f32
    %17 = arith.mulf %16, %16 : f32
    %18 = arith.mulf %17, %17 : f32
    %19 = arith.mulf %18, %18 : f32
    %20 = arith.mulf %19, %19 : f32
    %21 = arith.mulf %20, %20 : f32
    %22 = arith.mulf %21, %21 : f32
    %23 = arith.mulf %22, %22 : f32
    %24 = arith.mulf %23, %23 : f32
    %25 = arith.mulf %24, %24 : f32
    %26 = arith.mulf %25, %25 : f32
    %27 = arith.mulf %26, %26 : f32
    %28 = arith.mulf %27, %27 : f32
    %q = llvm.getelementptr %y[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    llvm.store %28, %q : f32, !llvm.ptr
  }
  return
}
func.func @short(%x: !llvm.ptr, %n: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  scf.for %i = %zero to %n step %one : i64 {
    %p = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %0 = llvm.load %p : !llvm.ptr -> f32
    %1 = arith.mulf %0, %0 : f32
    llvm.store %1, %p : f32, !llvm.ptr
  }
  return
}

// CHECK: #[[MARK:.*]] = #llvm.loop_interleave<count = 4 : i32>
// CHECK: #[[LOOP:.*]] = #llvm.loop_annotation<interleave = #[[MARK]]>
// CHECK-LABEL: func.func @long
// CHECK: } {loop_annotation = #[[LOOP]]}
// CHECK-LABEL: func.func @strided
// CHECK-NOT: loop_annotation
