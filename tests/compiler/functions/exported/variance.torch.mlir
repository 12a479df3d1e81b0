module {
  func.func @main(%arg0: tensor<6x10xf32>) -> tensor<6xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f64>
    %cst_0 = arith.constant dense<10> : tensor<1xi64>
    %0 = stablehlo.convert %arg0 : (tensor<6x10xf32>) -> tensor<6x10xf64>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf64>, tensor<f64>) -> tensor<6xf64>
    %2 = stablehlo.reshape %1 : (tensor<6xf64>) -> tensor<6x1xf64>
    %3 = stablehlo.convert %cst_0 : (tensor<1xi64>) -> tensor<1xf64>
    %4 = stablehlo.reshape %3 : (tensor<1xf64>) -> tensor<f64>
    %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f64>) -> tensor<6x1xf64>
    %6 = stablehlo.divide %2, %5 : tensor<6x1xf64>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<6x1xf64>) -> tensor<6x10xf64>
    %8 = stablehlo.subtract %0, %7 : tensor<6x10xf64>
    %9 = stablehlo.multiply %8, %8 : tensor<6x10xf64>
    %10 = stablehlo.reduce(%9 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf64>, tensor<f64>) -> tensor<6xf64>
    %11 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f64>) -> tensor<6xf64>
    %12 = stablehlo.divide %10, %11 : tensor<6xf64>
    %13 = stablehlo.convert %12 : (tensor<6xf64>) -> tensor<6xf32>
    return %13 : tensor<6xf32>
  }
}
