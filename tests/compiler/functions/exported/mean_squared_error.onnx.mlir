module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<6x10xf32>) -> tensor<f32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = arith.constant dense<60> : tensor<1xi64>
    %0 = stablehlo.subtract %arg0, %arg1 : tensor<6x10xf32>
    %1 = stablehlo.multiply %0, %0 : tensor<6x10xf32>
    %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<f32>
    %3 = stablehlo.convert %cst_0 : (tensor<1xi64>) -> tensor<1xf32>
    %4 = stablehlo.reshape %3 : (tensor<1xf32>) -> tensor<f32>
    %5 = stablehlo.divide %2, %4 : tensor<f32>
    return %5 : tensor<f32>
  }
}
