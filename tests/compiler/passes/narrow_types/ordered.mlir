// RUN: cpu ordered
// A half precision value that a comparison and another user both read is rounded to its type for every user: the
// operation that computes it is marked, and `narrow-roundings` keeps the conversion.

#id = affine_map<(d0) -> (d0)>
#row = affine_map<(d0) -> ()>
func.func @main(%a: tensor<4xf16>, %init: tensor<f16>) -> (tensor<f16>, tensor<4xf16>) {
  %empty = tensor.empty() : tensor<4xf16>
  %square = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf16>) outs(%empty : tensor<4xf16>) {
  ^bb0(%x: f16, %out: f16):
    %0 = arith.mulf %x, %x : f16
    linalg.yield %0 : f16
  } -> tensor<4xf16>
  %maximum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["reduction"]}
      ins(%square : tensor<4xf16>) outs(%init : tensor<f16>) {
  ^bb0(%x: f16, %total: f16):
    %0 = arith.maximumf %total, %x : f16
    linalg.yield %0 : f16
  } -> tensor<f16>
  return %maximum, %square : tensor<f16>, tensor<4xf16>
}

// CHECK-LABEL: func.func @main
// CHECK: arith.mulf %in, %in {kcache.rounded} : f16
// CHECK: arith.maximumf %out, %in : f16
