module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<6x10xf32>) -> tensor<6x10xf32> {
    %0 = stablehlo.logistic %arg1 : tensor<6x10xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<6x10xf32>
    return %1 : tensor<6x10xf32>
  }
}
