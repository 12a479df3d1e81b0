// RUN: cpu attributes schedule=width:256
// Functions do not unwind. Slice functions are not inlined, so that the `noalias` of their arguments is kept, and get the
// preferred vector width of the schedule.

llvm.func @launch_0() {
  llvm.return
}
llvm.func @kcache_run() {
  llvm.return
}

// CHECK: llvm.func @launch_0() attributes {no_inline, no_unwind, passthrough = {{\[\[}}"prefer-vector-width", "256"{{\]\]}}}
// CHECK: llvm.func @kcache_run() attributes {no_unwind}
