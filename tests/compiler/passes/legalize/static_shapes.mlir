// RUN: cpu static-shapes
// Tuples are taken apart: an element is the value that was put in.

func.func @main(%a: tensor<2xf32>, %b: tensor<3xi32>) -> tensor<3xi32> {
  %pair = stablehlo.tuple %a, %b : tuple<tensor<2xf32>, tensor<3xi32>>
  %second = stablehlo.get_tuple_element %pair[1] : (tuple<tensor<2xf32>, tensor<3xi32>>) -> tensor<3xi32>
  return %second : tensor<3xi32>
}

// CHECK-LABEL: func.func @main
// CHECK-NOT: tuple
// CHECK: return %arg1 : tensor<3xi32>
