module {
  func.func @main(%arg0: tensor<2x5x6x8xf32>, %arg1: tensor<5xf32>, %arg2: tensor<5xf32>, %arg3: tensor<5xf32>, %arg4: tensor<5xf32>) -> tensor<2x5x6x8xf32> {
    %cst = arith.constant dense<9.9999997473787516E-6> : tensor<1xf64>
    %0 = stablehlo.reshape %arg3 : (tensor<5xf32>) -> tensor<1x5xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x5xf32>) -> tensor<1x5x1xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x5x1xf32>) -> tensor<1x5x1x1xf32>
    %3 = stablehlo.reshape %arg4 : (tensor<5xf32>) -> tensor<1x5xf32>
    %4 = stablehlo.reshape %3 : (tensor<1x5xf32>) -> tensor<1x5x1xf32>
    %5 = stablehlo.reshape %4 : (tensor<1x5x1xf32>) -> tensor<1x5x1x1xf32>
    %6 = stablehlo.convert %cst : (tensor<1xf64>) -> tensor<1xf32>
    %7 = stablehlo.reshape %6 : (tensor<1xf32>) -> tensor<f32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<1x5x1x1xf32>
    %9 = stablehlo.add %5, %8 : tensor<1x5x1x1xf32>
    %10 = stablehlo.rsqrt %9 : tensor<1x5x1x1xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2, 3] : (tensor<1x5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %12 = stablehlo.subtract %arg0, %11 : tensor<2x5x6x8xf32>
    %13 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2, 3] : (tensor<1x5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %14 = stablehlo.multiply %12, %13 : tensor<2x5x6x8xf32>
    %15 = stablehlo.reshape %arg1 : (tensor<5xf32>) -> tensor<1x5xf32>
    %16 = stablehlo.reshape %15 : (tensor<1x5xf32>) -> tensor<1x5x1xf32>
    %17 = stablehlo.reshape %16 : (tensor<1x5x1xf32>) -> tensor<1x5x1x1xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1, 2, 3] : (tensor<1x5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %19 = stablehlo.multiply %14, %18 : tensor<2x5x6x8xf32>
    %20 = stablehlo.reshape %arg2 : (tensor<5xf32>) -> tensor<1x5xf32>
    %21 = stablehlo.reshape %20 : (tensor<1x5xf32>) -> tensor<1x5x1xf32>
    %22 = stablehlo.reshape %21 : (tensor<1x5x1xf32>) -> tensor<1x5x1x1xf32>
    %23 = stablehlo.broadcast_in_dim %22, dims = [0, 1, 2, 3] : (tensor<1x5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %24 = stablehlo.add %19, %23 : tensor<2x5x6x8xf32>
    return %24 : tensor<2x5x6x8xf32>
  }
}
