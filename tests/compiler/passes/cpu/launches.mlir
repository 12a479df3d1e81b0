// RUN: cpu signature..launches
// Each group of structured operations becomes a slice function over a range of its outermost loop, a task that unpacks
// its closure, and a call of `kcache_dispatch` in the entry `kcache_run`. A large elementwise launch is divided among
// threads: its extent and its grain are in the interface.

func.func @main(%a: tensor<4096x64xf32>, %b: tensor<4096x64xf32>) -> tensor<4096x64xf32> {
  %0 = stablehlo.add %a, %b : tensor<4096x64xf32>
  return %0 : tensor<4096x64xf32>
}

// BEFORE: linalg.generic {{.*}} ins(%arg0, %arg1 : memref<4096x64xf32>, memref<4096x64xf32>) outs(%arg2 : memref<4096x64xf32>)
// CHECK-LABEL: func.func public @kcache_run
// CHECK: %[[TASK:.*]] = llvm.mlir.addressof @launch_0_task
// CHECK: %[[EXTENT:.*]] = arith.constant 262144 : i64
// CHECK: %[[GRAIN:.*]] = arith.constant 32768 : i64
// CHECK: llvm.call @kcache_dispatch(%arg3, %{{.*}}, %[[EXTENT]], %[[GRAIN]], %[[TASK]], %{{.*}})
// CHECK-LABEL: func.func private @launch_0(%arg0: i64, %arg1: i64
// CHECK: scf.for %[[I:.*]] = %arg0 to %arg1
// CHECK: %[[ADDRESS:.*]] = llvm.getelementptr %arg3[%[[I]]]
// CHECK: llvm.load %[[ADDRESS]] : !llvm.ptr -> f32
// CHECK: arith.addf
// CHECK: llvm.store %{{.*}} : f32, !llvm.ptr
// CHECK-LABEL: llvm.func internal @launch_0_task
// CHECK: func.call @launch_0(%arg1, %arg2
// CHECK: // launches: [Launch(name='launch_0', ops=('arith.addf',), extent='262144', grain='32768', flops='', bytes='')]
