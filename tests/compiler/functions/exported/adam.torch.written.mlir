module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<6x10xf32>, %arg2: tensor<6x10xf32>, %arg3: tensor<6x10xf32>, %arg4: tensor<f32>) -> (tensor<6x10xf32>, tensor<6x10xf32>, tensor<6x10xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i64>
    %cst = arith.constant dense<9.000000e-01> : tensor<1xf64>
    %cst_0 = arith.constant dense<0.099999999999999978> : tensor<1xf64>
    %cst_1 = arith.constant dense<0.99899999999999999> : tensor<1xf64>
    %cst_2 = arith.constant dense<2> : tensor<1xi64>
    %cst_3 = arith.constant dense<0.0010000000000000009> : tensor<1xf64>
    %cst_4 = arith.constant dense<1.000000e-03> : tensor<1xf64>
    %cst_5 = arith.constant dense<1.000000e-08> : tensor<1xf64>
    %0 = stablehlo.convert %cst : (tensor<1xf64>) -> tensor<1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1xf32>) -> tensor<f32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %3 = stablehlo.multiply %arg2, %2 : tensor<6x10xf32>
    %4 = stablehlo.convert %cst_0 : (tensor<1xf64>) -> tensor<1xf32>
    %5 = stablehlo.reshape %4 : (tensor<1xf32>) -> tensor<f32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %7 = stablehlo.multiply %arg1, %6 : tensor<6x10xf32>
    %8 = stablehlo.add %3, %7 : tensor<6x10xf32>
    %9 = stablehlo.convert %cst_1 : (tensor<1xf64>) -> tensor<1xf32>
    %10 = stablehlo.reshape %9 : (tensor<1xf32>) -> tensor<f32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %12 = stablehlo.multiply %arg3, %11 : tensor<6x10xf32>
    %13 = stablehlo.convert %cst_2 : (tensor<1xi64>) -> tensor<1xf32>
    %14 = stablehlo.reshape %13 : (tensor<1xf32>) -> tensor<f32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %16 = stablehlo.power %arg1, %15 : tensor<6x10xf32>
    %17 = stablehlo.convert %cst_3 : (tensor<1xf64>) -> tensor<1xf32>
    %18 = stablehlo.reshape %17 : (tensor<1xf32>) -> tensor<f32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %20 = stablehlo.multiply %16, %19 : tensor<6x10xf32>
    %21 = stablehlo.add %12, %20 : tensor<6x10xf32>
    %22 = stablehlo.power %1, %arg4 : tensor<f32>
    %23 = stablehlo.convert %c : (tensor<i64>) -> tensor<f32>
    %24 = stablehlo.subtract %23, %22 : tensor<f32>
    %25 = stablehlo.broadcast_in_dim %24, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %26 = stablehlo.divide %8, %25 : tensor<6x10xf32>
    %27 = stablehlo.convert %cst_4 : (tensor<1xf64>) -> tensor<1xf32>
    %28 = stablehlo.reshape %27 : (tensor<1xf32>) -> tensor<f32>
    %29 = stablehlo.broadcast_in_dim %28, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %30 = stablehlo.multiply %26, %29 : tensor<6x10xf32>
    %31 = stablehlo.power %10, %arg4 : tensor<f32>
    %32 = stablehlo.subtract %23, %31 : tensor<f32>
    %33 = stablehlo.broadcast_in_dim %32, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %34 = stablehlo.divide %21, %33 : tensor<6x10xf32>
    %35 = stablehlo.sqrt %34 : tensor<6x10xf32>
    %36 = stablehlo.convert %cst_5 : (tensor<1xf64>) -> tensor<1xf32>
    %37 = stablehlo.reshape %36 : (tensor<1xf32>) -> tensor<f32>
    %38 = stablehlo.broadcast_in_dim %37, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %39 = stablehlo.add %35, %38 : tensor<6x10xf32>
    %40 = stablehlo.divide %30, %39 : tensor<6x10xf32>
    %41 = stablehlo.subtract %arg0, %40 : tensor<6x10xf32>
    return %41, %8, %21 : tensor<6x10xf32>, tensor<6x10xf32>, tensor<6x10xf32>
  }
}
