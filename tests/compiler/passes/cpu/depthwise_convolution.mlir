// RUN: cpu signature..launches
// A depthwise convolution is a launch with a direct loop nest: each channel is convolved with its own filter.

func.func @main(%x: tensor<1x32x32x16xf32>, %w: tensor<3x3x1x16xf32>) -> tensor<1x30x30x16xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {} {batch_group_count = 1 : i64, feature_group_count = 16 : i64}
      : (tensor<1x32x32x16xf32>, tensor<3x3x1x16xf32>) -> tensor<1x30x30x16xf32>
  return %0 : tensor<1x30x30x16xf32>
}

// CHECK-LABEL: func.func private @launch_0
// CHECK: scf.for %[[ROW:.*]] = %arg0 to %arg1 step
// CHECK: scf.for %[[COLUMN:.*]] = %{{.*}} step %c4_i64
// CHECK: scf.for %[[CHANNEL:.*]] = %{{.*}} to %c16_i64
// CHECK-COUNT-36: arith.mulf {{.*}} fastmath<contract> : f32
// CHECK: // launches: [Launch(name='launch_0', ops=('window',), extent='30'
