// RUN: nvidia split-rows
// Softmax of two long rows becomes two phases of 16 parts of each row: maxima and sums of exponentials of parts, and
// what combines them in each part. A part of nothing but -inf subtracts 0. Short rows stay whole.

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#none = affine_map<(d0) -> ()>
#one = affine_map<(d0) -> (d0)>
func.func private @kcm_exp_f32(f32) -> f32
func.func @main(%x: tensor<2x32768xf32>, %short: tensor<2x4096xf32>) -> (tensor<2x32768xf32>, tensor<2x4096xf32>) {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.000000e+00 : f32
  %empty = tensor.empty() : tensor<2xf32>
  %lowest = linalg.generic {indexing_maps = [#none, #one], iterator_types = ["parallel"]}
      ins(%low : f32) outs(%empty : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2xf32>
  %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x32768xf32>) outs(%lowest : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %out, %in : f32
    linalg.yield %m : f32
  } -> tensor<2xf32>
  %wide = tensor.empty() : tensor<2x32768xf32>
  %weights = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %top : tensor<2x32768xf32>, tensor<2xf32>) outs(%wide : tensor<2x32768xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %d = arith.subf %in, %m : f32
    %e = func.call @kcm_exp_f32(%d) : (f32) -> f32
    linalg.yield %e : f32
  } -> tensor<2x32768xf32>
  %zeros = linalg.generic {indexing_maps = [#none, #one], iterator_types = ["parallel"]}
      ins(%zero : f32) outs(%empty : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%weights : tensor<2x32768xf32>) outs(%zeros : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %out, %in : f32
    linalg.yield %s : f32
  } -> tensor<2xf32>
  %share = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%weights, %sum : tensor<2x32768xf32>, tensor<2xf32>) outs(%wide : tensor<2x32768xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %q = arith.divf %in, %s : f32
    linalg.yield %q : f32
  } -> tensor<2x32768xf32>
  %least = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%short : tensor<2x4096xf32>) outs(%lowest : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %out, %in : f32
    linalg.yield %m : f32
  } -> tensor<2xf32>
  %narrow = tensor.empty() : tensor<2x4096xf32>
  %scaled = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%short, %least : tensor<2x4096xf32>, tensor<2xf32>) outs(%narrow : tensor<2x4096xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %q = arith.divf %in, %m : f32
    linalg.yield %q : f32
  } -> tensor<2x4096xf32>
  return %share, %scaled : tensor<2x32768xf32>, tensor<2x4096xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: %[[X:.*]] = tensor.expand_shape %arg0 {{.*}} : tensor<2x32768xf32> into tensor<2x16x2048xf32>
// CHECK: %[[TOPS:.*]] = linalg.generic {{.*}}"reduction"{{.*}} ins(%[[X]] : {{.*}}kcache.phase = "0 0"
// CHECK: %[[TOP:.*]] = linalg.generic {{.*}}"reduction"{{.*}} ins(%[[TOPS]] : {{.*}}kcache.phase = "0 1"
// CHECK: %[[WEIGHTS:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[TOP]] : {{.*}}kcache.phase = "0 1"
// CHECK: func.call @kcm_exp_f32
// CHECK: %[[USED:.*]] = linalg.generic {{.*}} ins(%[[TOPS]] : {{.*}}kcache.phase = "0 0"
// CHECK: arith.cmpf oeq
// CHECK: arith.select
// CHECK: %[[OWN:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[USED]] : {{.*}}kcache.phase = "0 0"
// CHECK: func.call @kcm_exp_f32
// CHECK: %[[SUMS:.*]] = linalg.generic {{.*}} ins(%[[OWN]] : {{.*}}kcache.phase = "0 0"
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[SUMS]], %[[TOPS]], %[[TOP]] : {{.*}}kcache.phase = "0 1"
// CHECK: arith.subf
// CHECK: func.call @kcm_exp_f32
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} ins(%[[WEIGHTS]], %[[SUM]] : {{.*}}kcache.phase = "0 1"
// CHECK: arith.divf
// CHECK: tensor.collapse_shape {{.*}} : tensor<2x16x2048xf32> into tensor<2x32768xf32>
// CHECK: linalg.generic {{.*}}"parallel", "reduction"{{.*}} ins(%arg1 : tensor<2x4096xf32>)
