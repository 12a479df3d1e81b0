module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<10xf32>) -> tensor<6x10xf32> {
    %cst = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<6x1xf32>
    %cst_2 = arith.constant dense<10> : tensor<1xi64>
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<6x10xf32>
    %1 = stablehlo.reduce(%0 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
    %2 = stablehlo.reshape %1 : (tensor<6xf32>) -> tensor<6x1xf32>
    %3 = stablehlo.convert %cst_2 : (tensor<1xi64>) -> tensor<1xf32>
    %4 = stablehlo.reshape %3 : (tensor<1xf32>) -> tensor<f32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<6x1xf32>
    %6 = stablehlo.divide %2, %5 : tensor<6x1xf32>
    %7 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x1xf32>
    %8 = stablehlo.add %6, %7 : tensor<6x1xf32>
    %9 = stablehlo.sqrt %8 : tensor<6x1xf32>
    %10 = stablehlo.divide %cst_1, %9 : tensor<6x1xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1] : (tensor<6x1xf32>) -> tensor<6x10xf32>
    %12 = stablehlo.multiply %arg0, %11 : tensor<6x10xf32>
    %13 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<10xf32>) -> tensor<6x10xf32>
    %14 = stablehlo.multiply %12, %13 : tensor<6x10xf32>
    return %14 : tensor<6x10xf32>
  }
}
