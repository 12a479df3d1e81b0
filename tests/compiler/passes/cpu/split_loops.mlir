// RUN: cpu split-loops
// A concatenation reads its second operand from column 32 on: each operand gets a loop without comparisons. Parts of fewer than
// 16 columns stay in one loop. A narrow cast of the counter and a bound above all signed numbers are left to
// the loops.

func.func @concatenation(%x: !llvm.ptr, %y: !llvm.ptr, %z: !llvm.ptr) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %end = arith.constant 80 : i64
  scf.for %i = %zero to %end step %one : i64 {
    %column = arith.index_cast %i : i64 to index
    %bound = arith.constant 32 : index
    %first = arith.cmpi ult, %column, %bound : index
    %value = scf.if %first -> (f32) {
      %p = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %a = llvm.load %p : !llvm.ptr -> f32
      scf.yield %a : f32
    } else {
      %p = llvm.getelementptr %y[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %b = llvm.load %p : !llvm.ptr -> f32
      scf.yield %b : f32
    }
    %q = llvm.getelementptr %z[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    llvm.store %value, %q : f32, !llvm.ptr
  }
  return
}
func.func @carried(%x: !llvm.ptr) -> i64 {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %end = arith.constant 48 : i64
  %middle = arith.constant 16 : i64
  %sum = scf.for %i = %zero to %end step %one iter_args(%total = %zero) -> (i64) : i64 {
    %low = arith.cmpi slt, %i, %middle : i64
    %step = arith.select %low, %one, %i : i64
    %next = arith.addi %total, %step : i64
    scf.yield %next : i64
  }
  return %sum : i64
}
func.func @short(%x: !llvm.ptr) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %end = arith.constant 80 : i64
  %bound = arith.constant 8 : i64
  scf.for %i = %zero to %end step %one : i64 {
    %low = arith.cmpi ult, %i, %bound : i64
    %step = arith.select %low, %one, %i : i64
    %q = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    llvm.store %step, %q : i64, !llvm.ptr
  }
  return
}
func.func @other_values(%x: !llvm.ptr) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %end = arith.constant 300 : i64
  %middle = arith.constant 64 : index
  %narrow = arith.constant 32 : i8
  %large = arith.constant -1 : i32
  scf.for %i = %zero to %end step %one : i64 {
    %column = arith.index_cast %i : i64 to index
    %low = arith.cmpi ult, %column, %middle : index
    %byte = arith.index_cast %column : index to i8
    %wraps = arith.cmpi ult, %byte, %narrow : i8
    %word = arith.index_cast %column : index to i32
    %always = arith.cmpi ult, %word, %large : i32
    %both = arith.andi %low, %wraps : i1
    %all = arith.andi %both, %always : i1
    %step = arith.select %all, %one, %i : i64
    %q = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    llvm.store %step, %q : i64, !llvm.ptr
  }
  return
}

// CHECK-LABEL: func.func @concatenation
// CHECK-DAG: %[[LOW:.*]] = arith.constant 0 : i64
// CHECK: %[[MIDDLE:.*]] = arith.constant 32 : i64
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[MIDDLE]] step
// CHECK-NOT: arith.cmpi
// CHECK: %[[TRUE:.*]] = arith.constant true
// CHECK: scf.if %[[TRUE]]
// CHECK: scf.for
// CHECK-NOT: arith.cmpi
// CHECK: %[[FALSE:.*]] = arith.constant false
// CHECK: scf.if %[[FALSE]]
// CHECK-LABEL: func.func @carried
// CHECK: %[[FIRST:.*]] = scf.for
// CHECK: %[[SECOND:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[FIRST]])
// CHECK: return %[[SECOND]]
// CHECK-LABEL: func.func @short
// CHECK: arith.cmpi ult
// CHECK-NOT: scf.for
// CHECK-LABEL: func.func @other_values
// CHECK-COUNT-2: scf.for
// CHECK-NOT: scf.for
