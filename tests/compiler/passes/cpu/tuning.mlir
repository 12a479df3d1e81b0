// RUN: cpu tuning tuning=znver4
// The tuning model of the options becomes an attribute of every function: LLVM schedules for that CPU and uses no
// feature that the target does not have.

llvm.func @kcache_run() {
  llvm.return
}

// CHECK: llvm.func @kcache_run() attributes {tune_cpu = "znver4"}
