// RUN: nvidia split-reductions
// A sum of columns becomes 16 sums of parts, which start at the neutral element, and their sum. Rows that fill a
// GPU, and sizes without a divisor, stay whole.

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
func.func @main(%a: tensor<1024x8xf32>, %columns: tensor<8xf32>, %rows: tensor<1024xf32>,
    %b: tensor<1021x8xf32>) -> (tensor<8xf32>, tensor<1024xf32>, tensor<8xf32>) {
  %0 = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]}
      ins(%a : tensor<1024x8xf32>) outs(%columns : tensor<8xf32>) {
  ^bb0(%x: f32, %total: f32):
    %square = arith.mulf %x, %x : f32
    %sum = arith.addf %total, %square : f32
    linalg.yield %sum : f32
  } -> tensor<8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<1024x8xf32>) outs(%rows : tensor<1024xf32>) {
  ^bb0(%x: f32, %total: f32):
    %sum = arith.addf %total, %x : f32
    linalg.yield %sum : f32
  } -> tensor<1024xf32>
  %2 = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]}
      ins(%b : tensor<1021x8xf32>) outs(%columns : tensor<8xf32>) {
  ^bb0(%x: f32, %total: f32):
    %sum = arith.addf %total, %x : f32
    linalg.yield %sum : f32
  } -> tensor<8xf32>
  return %0, %1, %2 : tensor<8xf32>, tensor<1024xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[START:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<16x8xf32>)
// CHECK: %{{.*}} = arith.constant -0.000000e+00 : f32
// CHECK: %[[PARTS:.*]] = tensor.expand_shape %arg0 {{.*}} : tensor<1024x8xf32> into tensor<16x64x8xf32>
// CHECK: %[[SUMS:.*]] = linalg.generic {{.*}}"parallel", "reduction", "parallel"{{.*}} ins(%[[PARTS]] : tensor<16x64x8xf32>) outs(%[[START]] : tensor<16x8xf32>)
// CHECK: arith.mulf
// CHECK: linalg.generic {{.*}}"reduction", "parallel"{{.*}} ins(%[[SUMS]] : tensor<16x8xf32>) outs(%arg1 : tensor<8xf32>)
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<1024x8xf32>) outs(%arg2 : tensor<1024xf32>)
// CHECK: linalg.generic {{.*}} ins(%arg3 : tensor<1021x8xf32>) outs(%arg1 : tensor<8xf32>)
