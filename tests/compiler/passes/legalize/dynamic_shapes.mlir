// RUN: cpu signature dynamic-shapes
// A broadcast to a computed shape becomes a `linalg.generic` over a tensor of that size. Sizes that the program
// assumes to be equal are returned beside the results, in pairs: the entry function compares them at run time.

func.func @main(%a: tensor<?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %axis0 = stablehlo.get_dimension_size %b, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %axis1 = stablehlo.get_dimension_size %b, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %rows = stablehlo.reshape %axis0 : (tensor<i32>) -> tensor<1xi32>
  %columns = stablehlo.reshape %axis1 : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %rows, %columns, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %wide = stablehlo.dynamic_broadcast_in_dim %a, %shape, dims = [1] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %wide : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @main(%arg0: tensor<?xf32>, %arg1: tensor<?x?xf32>) -> (tensor<?x?xf32>, index, index)
// CHECK-NOT: dynamic_broadcast_in_dim
// CHECK: tensor.dim %arg1, %{{.*}} : tensor<?x?xf32>
// CHECK: %[[SIZE:.*]] = tensor.dim %arg0, %{{.*}} : tensor<?xf32>
// CHECK: %[[LAST:.*]] = arith.subi %[[SIZE]], %{{.*}} : index
// CHECK: %[[DIFFERENCE:.*]] = arith.subi %{{.*}}, %[[SIZE]] : index
// CHECK: %[[REQUIRED:.*]] = arith.muli %{{.*}}, %[[DIFFERENCE]] : index
// CHECK: %[[RESULT:.*]] = linalg.generic
// CHECK: %[[COLUMN:.*]] = linalg.index 1 : index
// CHECK-NEXT: %[[READ:.*]] = arith.minsi %[[COLUMN]], %[[LAST]]
// CHECK-NEXT: tensor.extract %arg0[%[[READ]]]
// CHECK: return %[[RESULT]], %[[REQUIRED]], %{{.*}} : tensor<?x?xf32>, index, index
// CHECK: // size_checks: (True,)
