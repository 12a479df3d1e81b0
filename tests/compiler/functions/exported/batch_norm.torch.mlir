module {
  func.func @main(%arg0: tensor<2x5x6x8xf32>, %arg1: tensor<5xf32>, %arg2: tensor<5xf32>, %arg3: tensor<5xf32>, %arg4: tensor<5xf32>) -> tensor<2x5x6x8xf32> {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<5xf32>
    %cst_0 = arith.constant dense<1.000000e-05> : tensor<1xf64>
    %cst_1 = arith.constant dense<1> : tensor<1xi64>
    %0 = stablehlo.convert %cst_0 : (tensor<1xf64>) -> tensor<1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1xf32>) -> tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<5xf32>
    %3 = stablehlo.add %arg4, %2 : tensor<5xf32>
    %4 = stablehlo.sqrt %3 : tensor<5xf32>
    %5 = stablehlo.divide %cst, %4 : tensor<5xf32>
    %6 = stablehlo.convert %cst_1 : (tensor<1xi64>) -> tensor<1xf32>
    %7 = stablehlo.reshape %6 : (tensor<1xf32>) -> tensor<f32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<5xf32>
    %9 = stablehlo.multiply %5, %8 : tensor<5xf32>
    %10 = stablehlo.reshape %arg3 : (tensor<5xf32>) -> tensor<5x1xf32>
    %11 = stablehlo.reshape %10 : (tensor<5x1xf32>) -> tensor<5x1x1xf32>
    %12 = stablehlo.reshape %9 : (tensor<5xf32>) -> tensor<5x1xf32>
    %13 = stablehlo.reshape %12 : (tensor<5x1xf32>) -> tensor<5x1x1xf32>
    %14 = stablehlo.broadcast_in_dim %11, dims = [1, 2, 3] : (tensor<5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %15 = stablehlo.subtract %arg0, %14 : tensor<2x5x6x8xf32>
    %16 = stablehlo.broadcast_in_dim %13, dims = [1, 2, 3] : (tensor<5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %17 = stablehlo.multiply %15, %16 : tensor<2x5x6x8xf32>
    %18 = stablehlo.reshape %arg1 : (tensor<5xf32>) -> tensor<5x1xf32>
    %19 = stablehlo.reshape %18 : (tensor<5x1xf32>) -> tensor<5x1x1xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [1, 2, 3] : (tensor<5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %21 = stablehlo.multiply %17, %20 : tensor<2x5x6x8xf32>
    %22 = stablehlo.reshape %arg2 : (tensor<5xf32>) -> tensor<5x1xf32>
    %23 = stablehlo.reshape %22 : (tensor<5x1xf32>) -> tensor<5x1x1xf32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [1, 2, 3] : (tensor<5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %25 = stablehlo.add %21, %24 : tensor<2x5x6x8xf32>
    return %25 : tensor<2x5x6x8xf32>
  }
}
