// RUN: cpu signature..launches
// Sizes that must agree at run time are compared before the first launch; `kcache_run` returns an error code if they
// do not.

func.func @main(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.add %a, %b : tensor<?xf32>
  return %0 : tensor<?xf32>
}

// CHECK-LABEL: func.func public @kcache_run
// CHECK: %[[DIFFERENT:.*]] = arith.cmpi ne, %{{.*}}, %{{.*}} : i64
// CHECK: %[[CODE:.*]] = arith.select %[[DIFFERENT]], %c1_i32, %{{.*}} : i32
// CHECK-NEXT: llvm.store %[[CODE]], %0 : i32, !llvm.ptr
// CHECK-NEXT: llvm.call @kcache_dispatch
