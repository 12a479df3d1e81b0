// RUN: cpu signature..launches
// A sort is a launch of its own: rows are sorted independently.

func.func @main(%a: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %0 = "stablehlo.sort"(%a) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %less = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<64x32xf32>) -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}

// BEFORE: library_call = "kcache_keyed
// CHECK-LABEL: func.func private @launch_0
// CHECK: scf.for %[[ROW:.*]] = %arg0 to %arg1
// CHECK: llvm.call @kcache_network_32(%arg6, %c32_i64)
// CHECK: llvm.func internal @kcache_network_32
// CHECK: // launches: [Launch(name='launch_0', ops=('sort',), extent='64', grain='32', flops='', bytes='')]
