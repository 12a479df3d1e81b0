module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<10x14xf32>, %arg2: tensor<14xf32>) -> tensor<6x14xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<6x14xf32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<6x10xf32>, tensor<10x14xf32>) -> tensor<6x14xf32>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<14xf32>) -> tensor<6x14xf32>
    %2 = stablehlo.add %0, %1 : tensor<6x14xf32>
    %3 = stablehlo.maximum %2, %cst : tensor<6x14xf32>
    return %3 : tensor<6x14xf32>
  }
}
