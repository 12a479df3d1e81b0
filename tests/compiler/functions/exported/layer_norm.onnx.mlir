module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<10xf32>, %arg2: tensor<10xf32>) -> tensor<6x10xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = arith.constant dense<10> : tensor<1xi64>
    %cst_1 = arith.constant dense<9.9999997473787516E-6> : tensor<1xf64>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
    %1 = stablehlo.reshape %0 : (tensor<6xf32>) -> tensor<6x1xf32>
    %2 = stablehlo.convert %cst_0 : (tensor<1xi64>) -> tensor<1xf32>
    %3 = stablehlo.reshape %2 : (tensor<1xf32>) -> tensor<f32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<6x1xf32>
    %5 = stablehlo.divide %1, %4 : tensor<6x1xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<6x1xf32>) -> tensor<6x10xf32>
    %7 = stablehlo.subtract %arg0, %6 : tensor<6x10xf32>
    %8 = stablehlo.multiply %7, %7 : tensor<6x10xf32>
    %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
    %10 = stablehlo.reshape %9 : (tensor<6xf32>) -> tensor<6x1xf32>
    %11 = stablehlo.divide %10, %4 : tensor<6x1xf32>
    %12 = stablehlo.convert %cst_1 : (tensor<1xf64>) -> tensor<1xf32>
    %13 = stablehlo.reshape %12 : (tensor<1xf32>) -> tensor<f32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<6x1xf32>
    %15 = stablehlo.add %11, %14 : tensor<6x1xf32>
    %16 = stablehlo.rsqrt %15 : tensor<6x1xf32>
    %17 = stablehlo.broadcast_in_dim %16, dims = [0, 1] : (tensor<6x1xf32>) -> tensor<6x10xf32>
    %18 = stablehlo.multiply %7, %17 : tensor<6x10xf32>
    %19 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<10xf32>) -> tensor<6x10xf32>
    %20 = stablehlo.multiply %18, %19 : tensor<6x10xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<10xf32>) -> tensor<6x10xf32>
    %22 = stablehlo.add %20, %21 : tensor<6x10xf32>
    return %22 : tensor<6x10xf32>
  }
}
