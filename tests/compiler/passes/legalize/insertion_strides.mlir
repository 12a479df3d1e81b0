// RUN: cpu insertion-strides
// Elements that are inserted into a fill with a stride: the upstream canonicalization would fold the insertion of a
// padded tensor into the fill and lose the stride. As a `linalg.generic` the fill is opaque to it. Programs without
// padding are not changed.

func.func @main(%x: tensor<2xf32>, %value: f32) -> (tensor<8xf32>, tensor<4xf32>) {
  %empty = tensor.empty() : tensor<8xf32>
  %fill = linalg.fill ins(%value : f32) outs(%empty : tensor<8xf32>) -> tensor<8xf32>
  %spread = tensor.insert_slice %x into %fill[1] [2] [3] : tensor<2xf32> into tensor<8xf32>
  %padded = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %value : f32
  } : tensor<2xf32> to tensor<4xf32>
  return %spread, %padded : tensor<8xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: linalg.fill
// CHECK: %[[FILL:.*]] = linalg.generic {{.*}} ins(%arg1 : f32) outs(%{{.*}} : tensor<8xf32>)
// CHECK: tensor.insert_slice %arg0 into %[[FILL]][1] [2] [3]
