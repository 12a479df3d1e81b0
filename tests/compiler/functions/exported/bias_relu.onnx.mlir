module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<10xf32>) -> tensor<6x10xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<6x10xf32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<10xf32>) -> tensor<6x10xf32>
    %1 = stablehlo.add %arg0, %0 : tensor<6x10xf32>
    %2 = stablehlo.maximum %1, %cst : tensor<6x10xf32>
    return %2 : tensor<6x10xf32>
  }
}
