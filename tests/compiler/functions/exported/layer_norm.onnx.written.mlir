module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<10xf32>, %arg2: tensor<10xf32>) -> tensor<6x10xf32> {
    %cst = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_1 = arith.constant dense<10> : tensor<1xi64>
    %cst_2 = arith.constant dense<2> : tensor<1xi64>
    %0 = stablehlo.reduce(%arg0 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
    %1 = stablehlo.reshape %0 : (tensor<6xf32>) -> tensor<6x1xf32>
    %2 = stablehlo.convert %cst_1 : (tensor<1xi64>) -> tensor<1xf32>
    %3 = stablehlo.reshape %2 : (tensor<1xf32>) -> tensor<f32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<6x1xf32>
    %5 = stablehlo.divide %1, %4 : tensor<6x1xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<6x1xf32>) -> tensor<6x10xf32>
    %7 = stablehlo.subtract %arg0, %6 : tensor<6x10xf32>
    %8 = stablehlo.convert %cst_2 : (tensor<1xi64>) -> tensor<1xf32>
    %9 = stablehlo.reshape %8 : (tensor<1xf32>) -> tensor<f32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %11 = stablehlo.power %7, %10 : tensor<6x10xf32>
    %12 = stablehlo.reduce(%11 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
    %13 = stablehlo.reshape %12 : (tensor<6xf32>) -> tensor<6x1xf32>
    %14 = stablehlo.divide %13, %4 : tensor<6x1xf32>
    %15 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x1xf32>
    %16 = stablehlo.add %14, %15 : tensor<6x1xf32>
    %17 = stablehlo.sqrt %16 : tensor<6x1xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1] : (tensor<6x1xf32>) -> tensor<6x10xf32>
    %19 = stablehlo.divide %7, %18 : tensor<6x10xf32>
    %20 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<10xf32>) -> tensor<6x10xf32>
    %21 = stablehlo.multiply %19, %20 : tensor<6x10xf32>
    %22 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<10xf32>) -> tensor<6x10xf32>
    %23 = stablehlo.add %21, %22 : tensor<6x10xf32>
    return %23 : tensor<6x10xf32>
  }
}
