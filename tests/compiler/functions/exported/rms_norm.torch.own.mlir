module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<10xf32>) -> tensor<6x10xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = arith.constant dense<10> : tensor<1xi64>
    %cst_1 = arith.constant dense<1.000000e-05> : tensor<1xf64>
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<6x10xf32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
    %2 = stablehlo.reshape %1 : (tensor<6xf32>) -> tensor<6x1xf32>
    %3 = stablehlo.convert %cst_0 : (tensor<1xi64>) -> tensor<1xf32>
    %4 = stablehlo.reshape %3 : (tensor<1xf32>) -> tensor<f32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<6x1xf32>
    %6 = stablehlo.divide %2, %5 : tensor<6x1xf32>
    %7 = stablehlo.convert %cst_1 : (tensor<1xf64>) -> tensor<1xf32>
    %8 = stablehlo.reshape %7 : (tensor<1xf32>) -> tensor<f32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<6x1xf32>
    %10 = stablehlo.add %6, %9 : tensor<6x1xf32>
    %11 = stablehlo.rsqrt %10 : tensor<6x1xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<6x1xf32>) -> tensor<6x10xf32>
    %13 = stablehlo.multiply %arg0, %12 : tensor<6x10xf32>
    %14 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<10xf32>) -> tensor<6x10xf32>
    %15 = stablehlo.multiply %13, %14 : tensor<6x10xf32>
    return %15 : tensor<6x10xf32>
  }
}
