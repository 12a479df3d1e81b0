module @jit_batch_norm_flax attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x5x6x8xf32>, %arg1: tensor<5xf32>, %arg2: tensor<5xf32>, %arg3: tensor<5xf32>, %arg4: tensor<5xf32>) -> (tensor<2x5x6x8xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.broadcast_in_dim %arg3, dims = [1] : (tensor<5xf32>) -> tensor<1x5x1x1xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2, 3] : (tensor<1x5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %2 = stablehlo.subtract %arg0, %1 : tensor<2x5x6x8xf32>
    %3 = stablehlo.broadcast_in_dim %arg4, dims = [1] : (tensor<5xf32>) -> tensor<1x5x1x1xf32>
    %cst = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x5x1x1xf32>
    %5 = stablehlo.add %3, %4 : tensor<1x5x1x1xf32>
    %6 = stablehlo.rsqrt %5 : tensor<1x5x1x1xf32>
    %7 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<5xf32>) -> tensor<1x5x1x1xf32>
    %8 = stablehlo.multiply %6, %7 : tensor<1x5x1x1xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2, 3] : (tensor<1x5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %10 = stablehlo.multiply %2, %9 : tensor<2x5x6x8xf32>
    %11 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<5xf32>) -> tensor<1x5x1x1xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x5x1x1xf32>) -> tensor<2x5x6x8xf32>
    %13 = stablehlo.add %10, %12 : tensor<2x5x6x8xf32>
    return %13 : tensor<2x5x6x8xf32>
  }
}
