// RUN: cpu signature..launches
// A transpose is done in square tiles: a tile of the operand is read row by row and written column by column while it
// is in registers.

func.func @main(%a: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<512x512xf32>) -> tensor<512x512xf32>
  return %0 : tensor<512x512xf32>
}

// CHECK-LABEL: func.func private @launch_0
// CHECK: scf.for %{{.*}} = %arg0 to %arg1 step %c8_i64
// CHECK: scf.for %{{.*}} to %c512_i64_0 step %c8_i64
// CHECK: scf.if
