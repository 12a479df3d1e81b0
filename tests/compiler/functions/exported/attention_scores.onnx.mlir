module {
  func.func @main(%arg0: tensor<2x3x6x8xf32>, %arg1: tensor<2x3x6x8xf32>) -> tensor<2x3x6x6xf32> {
    %cst = stablehlo.constant dense<2.82842708> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.transpose %arg1, dims = [0, 1, 3, 2] : (tensor<2x3x6x8xf32>) -> tensor<2x3x8x6xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2, 3] : (tensor<2x3x8x6xf32>) -> tensor<2x3x8x6xf32>
    %2 = stablehlo.dot_general %arg0, %1, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : (tensor<2x3x6x8xf32>, tensor<2x3x8x6xf32>) -> tensor<2x3x6x6xf32>
    %3 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x3x6x6xf32>
    %4 = stablehlo.divide %2, %3 : tensor<2x3x6x6xf32>
    %5 = stablehlo.reduce(%4 init: %cst_0) applies stablehlo.maximum across dimensions = [3] : (tensor<2x3x6x6xf32>, tensor<f32>) -> tensor<2x3x6xf32>
    %6 = stablehlo.reshape %5 : (tensor<2x3x6xf32>) -> tensor<2x3x6x1xf32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1, 2, 3] : (tensor<2x3x6x1xf32>) -> tensor<2x3x6x6xf32>
    %8 = stablehlo.subtract %4, %7 : tensor<2x3x6x6xf32>
    %9 = stablehlo.exponential %8 : tensor<2x3x6x6xf32>
    %10 = stablehlo.reduce(%9 init: %cst_1) applies stablehlo.add across dimensions = [3] : (tensor<2x3x6x6xf32>, tensor<f32>) -> tensor<2x3x6xf32>
    %11 = stablehlo.reshape %10 : (tensor<2x3x6xf32>) -> tensor<2x3x6x1xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<2x3x6x1xf32>) -> tensor<2x3x6x6xf32>
    %13 = stablehlo.divide %9, %12 : tensor<2x3x6x6xf32>
    return %13 : tensor<2x3x6x6xf32>
  }
}
