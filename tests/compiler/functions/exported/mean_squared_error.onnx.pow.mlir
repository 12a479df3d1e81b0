module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<6x10xf32>) -> tensor<f32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = arith.constant dense<2> : tensor<1xi64>
    %cst_1 = arith.constant dense<60> : tensor<1xi64>
    %0 = stablehlo.subtract %arg0, %arg1 : tensor<6x10xf32>
    %1 = stablehlo.convert %cst_0 : (tensor<1xi64>) -> tensor<1xf32>
    %2 = stablehlo.reshape %1 : (tensor<1xf32>) -> tensor<f32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %4 = stablehlo.power %0, %3 : tensor<6x10xf32>
    %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<f32>
    %6 = stablehlo.convert %cst_1 : (tensor<1xi64>) -> tensor<1xf32>
    %7 = stablehlo.reshape %6 : (tensor<1xf32>) -> tensor<f32>
    %8 = stablehlo.divide %5, %7 : tensor<f32>
    return %8 : tensor<f32>
  }
}
