module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<6x10xf32>, %arg2: tensor<6x10xf32>, %arg3: tensor<6x10xf32>, %arg4: tensor<f32>) -> (tensor<6x10xf32>, tensor<6x10xf32>, tensor<6x10xf32>) {
    %cst = stablehlo.constant dense<-0.899999976> : tensor<f32>
    %cst_0 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %c = stablehlo.constant dense<1> : tensor<i64>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_2 = arith.constant dense<5.000000e-01> : tensor<1xf64>
    %cst_3 = arith.constant dense<0.99899999999999999> : tensor<1xf64>
    %cst_4 = arith.constant dense<0.0010000000000000009> : tensor<1xf64>
    %cst_5 = arith.constant dense<9.000000e-01> : tensor<1xf64>
    %cst_6 = arith.constant dense<1.000000e-03> : tensor<1xf64>
    %cst_7 = arith.constant dense<1.000000e-08> : tensor<1xf64>
    %cst_8 = arith.constant dense<1> : tensor<1xi64>
    %0 = stablehlo.abs %cst_0 : tensor<f32>
    %1 = stablehlo.convert %cst_2 : tensor<1xf64>
    %2 = stablehlo.reshape %1 : (tensor<1xf64>) -> tensor<f64>
    %3 = stablehlo.convert %2 : (tensor<f64>) -> tensor<f32>
    %4 = stablehlo.compare GE, %0, %3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<f32>
    %7 = stablehlo.select %4, %5, %6 : tensor<i1>, tensor<f32>
    %8 = stablehlo.broadcast_in_dim %arg1, dims = [0, 1] : (tensor<6x10xf32>) -> tensor<6x10xf32>
    %9 = stablehlo.broadcast_in_dim %arg2, dims = [0, 1] : (tensor<6x10xf32>) -> tensor<6x10xf32>
    %10 = stablehlo.select %4, %8, %9 : tensor<i1>, tensor<6x10xf32>
    %11 = stablehlo.subtract %arg1, %arg2 : tensor<6x10xf32>
    %12 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %13 = stablehlo.multiply %12, %11 : tensor<6x10xf32>
    %14 = stablehlo.add %13, %10 : tensor<6x10xf32>
    %15 = stablehlo.convert %cst_3 : (tensor<1xf64>) -> tensor<1xf32>
    %16 = stablehlo.reshape %15 : (tensor<1xf32>) -> tensor<f32>
    %17 = stablehlo.broadcast_in_dim %16, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %18 = stablehlo.multiply %arg3, %17 : tensor<6x10xf32>
    %19 = stablehlo.convert %cst_4 : (tensor<1xf64>) -> tensor<1xf32>
    %20 = stablehlo.reshape %19 : (tensor<1xf32>) -> tensor<f32>
    %21 = stablehlo.broadcast_in_dim %20, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %22 = stablehlo.multiply %arg1, %21 : tensor<6x10xf32>
    %23 = stablehlo.multiply %22, %arg1 : tensor<6x10xf32>
    %24 = stablehlo.add %18, %23 : tensor<6x10xf32>
    %25 = stablehlo.convert %cst_5 : (tensor<1xf64>) -> tensor<1xf32>
    %26 = stablehlo.reshape %25 : (tensor<1xf32>) -> tensor<f32>
    %27 = stablehlo.power %26, %arg4 : tensor<f32>
    %28 = stablehlo.convert %c : (tensor<i64>) -> tensor<f32>
    %29 = stablehlo.subtract %28, %27 : tensor<f32>
    %30 = stablehlo.divide %cst_1, %29 : tensor<f32>
    %31 = stablehlo.convert %cst_6 : (tensor<1xf64>) -> tensor<1xf32>
    %32 = stablehlo.reshape %31 : (tensor<1xf32>) -> tensor<f32>
    %33 = stablehlo.multiply %30, %32 : tensor<f32>
    %34 = stablehlo.negate %33 : tensor<f32>
    %35 = stablehlo.sqrt %24 : tensor<6x10xf32>
    %36 = stablehlo.power %16, %arg4 : tensor<f32>
    %37 = stablehlo.subtract %28, %36 : tensor<f32>
    %38 = stablehlo.sqrt %37 : tensor<f32>
    %39 = stablehlo.multiply %38, %34 : tensor<f32>
    %40 = stablehlo.broadcast_in_dim %39, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %41 = stablehlo.divide %35, %40 : tensor<6x10xf32>
    %42 = stablehlo.divide %cst_1, %34 : tensor<f32>
    %43 = stablehlo.convert %cst_7 : (tensor<1xf64>) -> tensor<1xf32>
    %44 = stablehlo.reshape %43 : (tensor<1xf32>) -> tensor<f32>
    %45 = stablehlo.multiply %42, %44 : tensor<f32>
    %46 = stablehlo.broadcast_in_dim %45, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %47 = stablehlo.add %41, %46 : tensor<6x10xf32>
    %48 = stablehlo.convert %cst_8 : (tensor<1xi64>) -> tensor<1xf32>
    %49 = stablehlo.reshape %48 : (tensor<1xf32>) -> tensor<f32>
    %50 = stablehlo.broadcast_in_dim %49, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %51 = stablehlo.multiply %14, %50 : tensor<6x10xf32>
    %52 = stablehlo.divide %51, %47 : tensor<6x10xf32>
    %53 = stablehlo.add %arg0, %52 : tensor<6x10xf32>
    return %53, %14, %24 : tensor<6x10xf32>, tensor<6x10xf32>, tensor<6x10xf32>
  }
}
