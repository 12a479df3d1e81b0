module @jit_adam attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x5xf32>, %arg1: tensor<3x5xf32>, %arg2: tensor<3x5xf32>, %arg3: tensor<3x5xf32>, %arg4: tensor<i32>) -> (tensor<3x5xf32> {jax.result_info = "result[0]"}, tensor<3x5xf32> {jax.result_info = "result[1]"}, tensor<3x5xf32> {jax.result_info = "result[2]"}, tensor<i32> {jax.result_info = "result[3]"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %cst = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_1 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %cst_2 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %cst_3 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %cst_4 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %1 = stablehlo.multiply %0, %arg2 : tensor<3x5xf32>
    %2 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %3 = stablehlo.multiply %2, %arg1 : tensor<3x5xf32>
    %4 = stablehlo.add %1, %3 : tensor<3x5xf32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %6 = stablehlo.multiply %5, %arg3 : tensor<3x5xf32>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %8 = stablehlo.multiply %7, %arg1 : tensor<3x5xf32>
    %9 = stablehlo.multiply %8, %arg1 : tensor<3x5xf32>
    %10 = stablehlo.add %6, %9 : tensor<3x5xf32>
    %11 = stablehlo.convert %arg4 : (tensor<i32>) -> tensor<f32>
    %12 = stablehlo.add %11, %cst_0 : tensor<f32>
    %13 = stablehlo.power %cst_4, %12 : tensor<f32>
    %14 = stablehlo.subtract %cst_0, %13 : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %16 = stablehlo.divide %4, %15 : tensor<3x5xf32>
    %17 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %18 = stablehlo.multiply %17, %16 : tensor<3x5xf32>
    %19 = stablehlo.power %cst_2, %12 : tensor<f32>
    %20 = stablehlo.subtract %cst_0, %19 : tensor<f32>
    %21 = stablehlo.broadcast_in_dim %20, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %22 = stablehlo.divide %10, %21 : tensor<3x5xf32>
    %23 = stablehlo.sqrt %22 : tensor<3x5xf32>
    %24 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3x5xf32>
    %25 = stablehlo.add %23, %24 : tensor<3x5xf32>
    %26 = stablehlo.divide %18, %25 : tensor<3x5xf32>
    %27 = stablehlo.subtract %arg0, %26 : tensor<3x5xf32>
    %28 = stablehlo.add %arg4, %c : tensor<i32>
    return %27, %4, %10, %28 : tensor<3x5xf32>, tensor<3x5xf32>, tensor<3x5xf32>, tensor<i32>
  }
}

