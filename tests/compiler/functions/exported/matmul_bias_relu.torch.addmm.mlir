module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<10x14xf32>, %arg2: tensor<14xf32>) -> tensor<6x14xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<6x14xf32>
    %cst_0 = arith.constant dense<1> : tensor<1xi64>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<6x10xf32>, tensor<10x14xf32>) -> tensor<6x14xf32>
    %1 = stablehlo.convert %cst_0 : (tensor<1xi64>) -> tensor<1xf32>
    %2 = stablehlo.reshape %1 : (tensor<1xf32>) -> tensor<f32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<6x14xf32>
    %4 = stablehlo.multiply %0, %3 : tensor<6x14xf32>
    %5 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<14xf32>
    %6 = stablehlo.multiply %arg2, %5 : tensor<14xf32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [1] : (tensor<14xf32>) -> tensor<6x14xf32>
    %8 = stablehlo.add %4, %7 : tensor<6x14xf32>
    %9 = stablehlo.maximum %8, %cst : tensor<6x14xf32>
    return %9 : tensor<6x14xf32>
  }
}
