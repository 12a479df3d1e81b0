// RUN: cpu loops
// Every loop yields into the buffers that it carries: values are copied to fresh tensors first, so that a swap of
// two carried tensors stays correct.

func.func @main(%n: i1, %a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0:2 = scf.while (%x = %a, %y = %b) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    scf.condition(%n) %x, %y : tensor<4xf32>, tensor<4xf32>
  } do {
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>):
    scf.yield %y, %x : tensor<4xf32>, tensor<4xf32>
  }
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: ^bb0(%[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xf32>):
// CHECK-NEXT: %[[NEW_X:.*]] = bufferization.alloc_tensor() copy(%[[Y]])
// CHECK-NEXT: %[[NEW_Y:.*]] = bufferization.alloc_tensor() copy(%[[X]])
// CHECK-NEXT: %[[IN_X:.*]] = bufferization.materialize_in_destination %[[NEW_X]] in %[[X]]
// CHECK-NEXT: %[[IN_Y:.*]] = bufferization.materialize_in_destination %[[NEW_Y]] in %[[Y]]
// CHECK-NEXT: scf.yield %[[IN_X]], %[[IN_Y]]

// -----
// Every branch of a conditional yields a fresh tensor.

func.func @main(%n: i1, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = scf.if %n -> (tensor<4xf32>) {
    scf.yield %a : tensor<4xf32>
  } else {
    scf.yield %b : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// CHECK: scf.if %arg0
// CHECK-NEXT: %[[A:.*]] = bufferization.alloc_tensor() copy(%arg1)
// CHECK-NEXT: scf.yield %[[A]]
// CHECK-NEXT: else
// CHECK-NEXT: %[[B:.*]] = bufferization.alloc_tensor() copy(%arg2)
// CHECK-NEXT: scf.yield %[[B]]

// -----
// A carried tensor of which only a slice is replaced is updated in its buffer; one that is read too is not.

func.func @main(%n: i1, %i: index, %a: tensor<4x8xf32>, %b: tensor<4x8xf32>, %row: tensor<1x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0:2 = scf.while (%x = %a, %y = %b) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
    scf.condition(%n) %x, %y : tensor<4x8xf32>, tensor<4x8xf32>
  } do {
  ^bb0(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>):
    %new_x = tensor.insert_slice %row into %x[%i, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32>
    %first = tensor.extract_slice %y[0, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<1x8xf32>
    %new_y = tensor.insert_slice %first into %y[%i, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32>
    scf.yield %new_x, %new_y : tensor<4x8xf32>, tensor<4x8xf32>
  }
  return %0#0, %0#1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK: ^bb0(%[[X:.*]]: tensor<4x8xf32>, %[[Y:.*]]: tensor<4x8xf32>):
// CHECK-NEXT: %[[NEW_X:.*]] = tensor.insert_slice %arg4 into %[[X]]
// CHECK: %[[NEW_Y:.*]] = tensor.insert_slice %{{.*}} into %[[Y]]
// CHECK-NEXT: %[[FRESH:.*]] = bufferization.alloc_tensor() copy(%[[NEW_Y]])
// CHECK-NEXT: %[[IN_Y:.*]] = bufferization.materialize_in_destination %[[FRESH]] in %[[Y]]
// CHECK-NEXT: scf.yield %[[NEW_X]], %[[IN_Y]]

// -----
// So is one of which inner loops replace slices; not if the inner loop reads it.

func.func @main(%n: i1, %i: index, %a: tensor<4x8xf32>, %b: tensor<4x8xf32>, %row: tensor<1x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0:2 = scf.while (%x = %a, %y = %b) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
    scf.condition(%n) %x, %y : tensor<4x8xf32>, tensor<4x8xf32>
  } do {
  ^bb0(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>):
    %new_x = scf.while (%z = %x) : (tensor<4x8xf32>) -> (tensor<4x8xf32>) {
      scf.condition(%n) %z : tensor<4x8xf32>
    } do {
    ^bb0(%z: tensor<4x8xf32>):
      %new_z = tensor.insert_slice %row into %z[%i, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32>
      scf.yield %new_z : tensor<4x8xf32>
    }
    %new_y = scf.while (%z = %y) : (tensor<4x8xf32>) -> (tensor<4x8xf32>) {
      scf.condition(%n) %z : tensor<4x8xf32>
    } do {
    ^bb0(%z: tensor<4x8xf32>):
      %first = tensor.extract_slice %z[0, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<1x8xf32>
      %new_z = tensor.insert_slice %first into %z[%i, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32>
      scf.yield %new_z : tensor<4x8xf32>
    }
    scf.yield %new_x, %new_y : tensor<4x8xf32>, tensor<4x8xf32>
  }
  return %0#0, %0#1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK: ^bb0(%[[X:.*]]: tensor<4x8xf32>, %[[Y:.*]]: tensor<4x8xf32>):
// CHECK-NEXT: %[[NEW_X:.*]] = scf.while (%{{.*}} = %[[X]])
// CHECK: tensor.insert_slice %arg4
// CHECK-NEXT: scf.yield
// CHECK: %[[NEW_Y:.*]] = scf.while (%{{.*}} = %[[Y]])
// CHECK: bufferization.alloc_tensor()
// CHECK: %[[FRESH:.*]] = bufferization.alloc_tensor() copy(%[[NEW_Y]])
// CHECK-NEXT: %[[IN_Y:.*]] = bufferization.materialize_in_destination %[[FRESH]] in %[[Y]]
// CHECK-NEXT: scf.yield %[[NEW_X]], %[[IN_Y]]

// -----
// The place of a replaced slice is computed before its elements.

func.func @main(%n: i1, %i: tensor<i64>, %x: tensor<4x8xf32>, %row: tensor<1x8xf32>) -> tensor<4x8xf32> {
  %0 = scf.while (%y = %x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
    scf.condition(%n) %y : tensor<4x8xf32>
  } do {
  ^bb0(%y: tensor<4x8xf32>):
    %empty = tensor.empty() : tensor<1x8xf32>
    %doubled = linalg.add ins(%row, %row : tensor<1x8xf32>, tensor<1x8xf32>) outs(%empty : tensor<1x8xf32>) -> tensor<1x8xf32>
    %number = tensor.extract %i[] : tensor<i64>
    %place = arith.index_cast %number : i64 to index
    %z = tensor.insert_slice %doubled into %y[%place, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32>
    scf.yield %z : tensor<4x8xf32>
  }
  return %0 : tensor<4x8xf32>
}

// CHECK: ^bb0(%[[Y:.*]]: tensor<4x8xf32>):
// CHECK-NEXT: %[[NUMBER:.*]] = tensor.extract %arg1[]
// CHECK-NEXT: %[[PLACE:.*]] = arith.index_cast %[[NUMBER]]
// CHECK-NEXT: tensor.empty
// CHECK-NEXT: %[[DOUBLED:.*]] = linalg.add
// CHECK-NEXT: tensor.insert_slice %[[DOUBLED]] into %[[Y]][%[[PLACE]], 0]

// -----
// A slice and a whole tensor are in buffers of different strides, so elements are selected.

func.func @main(%n: i1, %a: tensor<4x3xf32>, %b: tensor<2x3xf32>, %i: index) -> tensor<2x3xf32> {
  %0 = tensor.extract_slice %a[%i, 0] [2, 3] [1, 1] : tensor<4x3xf32> to tensor<2x3xf32>
  %1 = arith.select %n, %b, %0 : tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @main
// CHECK: linalg.generic
// CHECK: arith.select %{{.*}} : f32
