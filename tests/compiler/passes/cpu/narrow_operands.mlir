// RUN: cpu narrow-operands
// A contraction whose operands are widened from bf16 reads bf16: the conversion moves into its body, where packing does
// it, and the f32 tensors are not materialized.

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
func.func @main(%a: tensor<64x64xbf16>, %b: tensor<64x64xf32>, %init: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %empty = tensor.empty() : tensor<64x64xf32>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<64x64xbf16>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%x: bf16, %out: f32):
    %0 = arith.extf %x : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  %0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%wide, %b : tensor<64x64xf32>, tensor<64x64xf32>) outs(%init : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %1 = arith.mulf %x, %y : f32
    %2 = arith.addf %sum, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<64x64xbf16>, tensor<64x64xf32>)
// CHECK: %[[WIDE:.*]] = arith.extf %in : bf16 to f32
// CHECK-NEXT: arith.mulf %[[WIDE]], %in_0 : f32
// CHECK-NOT: linalg.generic
// CHECK: return
