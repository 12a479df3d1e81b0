module {
  func.func @main(%arg0: tensor<6x10xf32>) -> tensor<6x10xf32> {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %cst_1 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %cst_3 = arith.constant dense<3> : tensor<1xi64>
    %0 = stablehlo.convert %cst_3 : (tensor<1xi64>) -> tensor<1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1xf32>) -> tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %3 = stablehlo.power %arg0, %2 : tensor<6x10xf32>
    %4 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %5 = stablehlo.multiply %3, %4 : tensor<6x10xf32>
    %6 = stablehlo.add %arg0, %5 : tensor<6x10xf32>
    %7 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %8 = stablehlo.multiply %6, %7 : tensor<6x10xf32>
    %9 = stablehlo.tanh %8 : tensor<6x10xf32>
    %10 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %11 = stablehlo.add %9, %10 : tensor<6x10xf32>
    %12 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %13 = stablehlo.multiply %arg0, %12 : tensor<6x10xf32>
    %14 = stablehlo.multiply %13, %11 : tensor<6x10xf32>
    return %14 : tensor<6x10xf32>
  }
}
