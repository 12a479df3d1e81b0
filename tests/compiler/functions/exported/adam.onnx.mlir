module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<6x10xf32>, %arg2: tensor<6x10xf32>, %arg3: tensor<6x10xf32>, %arg4: tensor<f32>) -> (tensor<6x10xf32>, tensor<6x10xf32>, tensor<6x10xf32>) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %cst_1 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %cst_2 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %cst_3 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %cst_4 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %1 = stablehlo.multiply %arg2, %0 : tensor<6x10xf32>
    %2 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %3 = stablehlo.multiply %arg1, %2 : tensor<6x10xf32>
    %4 = stablehlo.add %1, %3 : tensor<6x10xf32>
    %5 = stablehlo.multiply %arg1, %arg1 : tensor<6x10xf32>
    %6 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %7 = stablehlo.multiply %arg3, %6 : tensor<6x10xf32>
    %8 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %9 = stablehlo.multiply %5, %8 : tensor<6x10xf32>
    %10 = stablehlo.add %7, %9 : tensor<6x10xf32>
    %11 = stablehlo.power %cst_0, %arg4 : tensor<f32>
    %12 = stablehlo.subtract %cst, %11 : tensor<f32>
    %13 = stablehlo.power %cst_2, %arg4 : tensor<f32>
    %14 = stablehlo.subtract %cst, %13 : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %12, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %16 = stablehlo.divide %4, %15 : tensor<6x10xf32>
    %17 = stablehlo.broadcast_in_dim %14, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %18 = stablehlo.divide %10, %17 : tensor<6x10xf32>
    %19 = stablehlo.sqrt %18 : tensor<6x10xf32>
    %20 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %21 = stablehlo.add %19, %20 : tensor<6x10xf32>
    %22 = stablehlo.divide %16, %21 : tensor<6x10xf32>
    %23 = stablehlo.multiply %22, %8 : tensor<6x10xf32>
    %24 = stablehlo.subtract %arg0, %23 : tensor<6x10xf32>
    return %24, %4, %10 : tensor<6x10xf32>, tensor<6x10xf32>, tensor<6x10xf32>
  }
}
