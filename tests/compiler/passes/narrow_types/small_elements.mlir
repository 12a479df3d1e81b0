// RUN: cpu small-elements
// Elements of 8 bits and fewer that no buffer has natively are held in bytes: an f8 addition decodes both operands to
// f32, adds, and encodes the rounded sum. The signature of `main` has i8 arguments, and the element types of the
// caller's buffers are kept beside the module.

func.func @main(%a: tensor<4xf8E4M3FN>, %b: tensor<4xf8E4M3FN>) -> tensor<4xf8E4M3FN> {
  %0 = stablehlo.add %a, %b : tensor<4xf8E4M3FN>
  return %0 : tensor<4xf8E4M3FN>
}

// CHECK: func.func @main(%arg0: tensor<4xi8>, %arg1: tensor<4xi8>) -> tensor<4xi8>
// CHECK-NOT: f8E4M3FN
// CHECK: %[[DECODED_B:.*]] = linalg.generic {{.*}} ins(%arg1 : tensor<4xi8>) outs(%{{.*}} : tensor<4xf32>)
// CHECK: %[[DECODED_A:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<4xi8>) outs(%{{.*}} : tensor<4xf32>)
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[DECODED_A]], %[[DECODED_B]] : tensor<4xf32>, tensor<4xf32>)
// CHECK: arith.addf %in, %in_0 : f32
// CHECK: linalg.generic {{.*}} ins(%[[SUM]] : tensor<4xf32>) outs(%{{.*}} : tensor<4xi8>)
// CHECK: arith.trunci %{{.*}} : i32 to i8
// CHECK: // narrow_buffers: NarrowBuffers(inputs={0: 'f8E4M3FN', 1: 'f8E4M3FN'}, outputs={0: 'f8E4M3FN'})

// -----
// Data movement needs no conversion: the bytes are moved.

func.func @main(%a: tensor<2x3xf8E5M2>) -> tensor<3x2xf8E5M2> {
  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf8E5M2>) -> tensor<3x2xf8E5M2>
  return %0 : tensor<3x2xf8E5M2>
}

// CHECK-LABEL: func.func @main(%arg0: tensor<2x3xi8>) -> tensor<3x2xi8>
// CHECK-NEXT: stablehlo.transpose %arg0, dims = [1, 0] : (tensor<2x3xi8>) -> tensor<3x2xi8>
// CHECK-NEXT: return
