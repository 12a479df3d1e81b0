// RUN: cpu signature..launches
// A depthwise convolution of a channels-last image is a launch over rows: eight pixels of a vector of channels at a time,
// with all taps unrolled.

func.func @main(%x: tensor<1x32x32x16xf32>, %w: tensor<3x3x1x16xf32>) -> tensor<1x30x30x16xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {} {batch_group_count = 1 : i64, feature_group_count = 16 : i64}
      : (tensor<1x32x32x16xf32>, tensor<3x3x1x16xf32>) -> tensor<1x30x30x16xf32>
  return %0 : tensor<1x30x30x16xf32>
}

// CHECK-LABEL: func.func private @launch_0
// CHECK: scf.for %[[ROW:.*]] = %arg0 to %arg1 step
// CHECK: llvm.call @launch_0_row(%[[ROW]]
// CHECK-LABEL: llvm.func internal @launch_0_row
// CHECK-COUNT-72: llvm.intr.fma({{.*}}) : (vector<8xf32>, vector<8xf32>, vector<8xf32>) -> vector<8xf32>
// CHECK-COUNT-8: llvm.store {{.*}} : vector<8xf32>, !llvm.ptr
// CHECK: // launches: [Launch(name='launch_0', ops=('window',), extent='30'
