// RUN: cpu separate-destinations-late
// A fill moves to the operation that writes into it, so that both are fused whatever is between them, here a copy to a
// buffer of the caller. It moves into the loop of its user, too.

#row = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<4x8xf32>, %first: memref<4x8xf32>, %steps: index) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0 : index
  %one = arith.constant 1 : index
  %empty = tensor.empty() : tensor<4xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  bufferization.materialize_in_destination %x in restrict writable %first : (tensor<4x8xf32>, memref<4x8xf32>) -> ()
  %sum = linalg.generic {indexing_maps = [#row, #column], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xf32>) outs(%fill : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.addf %out, %in : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  %last = scf.for %i = %low to %steps step %one iter_args(%before = %sum) -> (tensor<4xf32>) {
    %again = linalg.generic {indexing_maps = [#row, #column], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<4x8xf32>) outs(%fill : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %y = arith.addf %out, %in : f32
      linalg.yield %y : f32
    } -> tensor<4xf32>
    scf.yield %again : tensor<4xf32>
  }
  return %sum, %last : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: linalg.fill
// CHECK: bufferization.materialize_in_destination
// CHECK: %[[FIRST:.*]] = linalg.fill
// CHECK-NEXT: linalg.generic {{.*}} outs(%[[FIRST]] : tensor<4xf32>)
// CHECK: scf.for
// CHECK: %[[SECOND:.*]] = linalg.fill
// CHECK-NEXT: linalg.generic {{.*}} outs(%[[SECOND]] : tensor<4xf32>)
