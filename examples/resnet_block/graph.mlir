module @jit_resnet_block attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x32x32x3xf32>, %arg1: tensor<3x3x3x32xf32>, %arg2: tensor<4x32xf32>, %arg3: tensor<3x3x32x32xf32>, %arg4: tensor<4x32xf32>, %arg5: tensor<3x3x32x32xf32>, %arg6: tensor<4x32xf32>, %arg7: tensor<32x10xf32>, %arg8: tensor<10xf32>) -> (tensor<2x10xf32> {jax.result_info = "result[0]"}, tensor<2x16x16x32xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x32x32x3xf32>, tensor<3x3x3x32xf32>) -> tensor<2x32x32x32xf32>
    %1 = stablehlo.slice %arg2 [0:1, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x32xf32>) -> tensor<32xf32>
    %3 = stablehlo.slice %arg2 [1:2, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %4 = stablehlo.reshape %3 : (tensor<1x32xf32>) -> tensor<32xf32>
    %5 = stablehlo.slice %arg2 [2:3, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %6 = stablehlo.reshape %5 : (tensor<1x32xf32>) -> tensor<32xf32>
    %7 = stablehlo.slice %arg2 [3:4, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %8 = stablehlo.reshape %7 : (tensor<1x32xf32>) -> tensor<32xf32>
    %9 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x32x32x32xf32>
    %11 = stablehlo.subtract %0, %10 : tensor<2x32x32x32xf32>
    %cst = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %13 = stablehlo.add %4, %12 : tensor<32xf32>
    %14 = stablehlo.rsqrt %13 : tensor<32xf32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x32x32x32xf32>
    %17 = stablehlo.multiply %11, %16 : tensor<2x32x32x32xf32>
    %18 = stablehlo.broadcast_in_dim %6, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x32x32x32xf32>
    %20 = stablehlo.multiply %17, %19 : tensor<2x32x32x32xf32>
    %21 = stablehlo.broadcast_in_dim %8, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x32x32x32xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x32x32x32xf32>
    %24 = call @relu(%23) : (tensor<2x32x32x32xf32>) -> tensor<2x32x32x32xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %25 = "stablehlo.reduce_window"(%24, %cst_0) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [0, 1], [0, 1], [0, 0]]> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg9: tensor<f32>, %arg10: tensor<f32>):
      %84 = stablehlo.maximum %arg9, %arg10 : tensor<f32>
      stablehlo.return %84 : tensor<f32>
    }) : (tensor<2x32x32x32xf32>, tensor<f32>) -> tensor<2x16x16x32xf32>
    %26 = stablehlo.convolution(%25, %arg3) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x16x16x32xf32>, tensor<3x3x32x32xf32>) -> tensor<2x16x16x32xf32>
    %27 = stablehlo.slice %arg4 [0:1, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %28 = stablehlo.reshape %27 : (tensor<1x32xf32>) -> tensor<32xf32>
    %29 = stablehlo.slice %arg4 [1:2, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %30 = stablehlo.reshape %29 : (tensor<1x32xf32>) -> tensor<32xf32>
    %31 = stablehlo.slice %arg4 [2:3, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %32 = stablehlo.reshape %31 : (tensor<1x32xf32>) -> tensor<32xf32>
    %33 = stablehlo.slice %arg4 [3:4, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %34 = stablehlo.reshape %33 : (tensor<1x32xf32>) -> tensor<32xf32>
    %35 = stablehlo.broadcast_in_dim %28, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %36 = stablehlo.broadcast_in_dim %35, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x16x16x32xf32>
    %37 = stablehlo.subtract %26, %36 : tensor<2x16x16x32xf32>
    %cst_1 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %38 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %39 = stablehlo.add %30, %38 : tensor<32xf32>
    %40 = stablehlo.rsqrt %39 : tensor<32xf32>
    %41 = stablehlo.broadcast_in_dim %40, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %42 = stablehlo.broadcast_in_dim %41, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x16x16x32xf32>
    %43 = stablehlo.multiply %37, %42 : tensor<2x16x16x32xf32>
    %44 = stablehlo.broadcast_in_dim %32, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %45 = stablehlo.broadcast_in_dim %44, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x16x16x32xf32>
    %46 = stablehlo.multiply %43, %45 : tensor<2x16x16x32xf32>
    %47 = stablehlo.broadcast_in_dim %34, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %48 = stablehlo.broadcast_in_dim %47, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x16x16x32xf32>
    %49 = stablehlo.add %46, %48 : tensor<2x16x16x32xf32>
    %50 = call @relu_0(%49) : (tensor<2x16x16x32xf32>) -> tensor<2x16x16x32xf32>
    %51 = stablehlo.convolution(%50, %arg5) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x16x16x32xf32>, tensor<3x3x32x32xf32>) -> tensor<2x16x16x32xf32>
    %52 = stablehlo.slice %arg6 [0:1, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %53 = stablehlo.reshape %52 : (tensor<1x32xf32>) -> tensor<32xf32>
    %54 = stablehlo.slice %arg6 [1:2, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %55 = stablehlo.reshape %54 : (tensor<1x32xf32>) -> tensor<32xf32>
    %56 = stablehlo.slice %arg6 [2:3, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %57 = stablehlo.reshape %56 : (tensor<1x32xf32>) -> tensor<32xf32>
    %58 = stablehlo.slice %arg6 [3:4, 0:32] : (tensor<4x32xf32>) -> tensor<1x32xf32>
    %59 = stablehlo.reshape %58 : (tensor<1x32xf32>) -> tensor<32xf32>
    %60 = stablehlo.broadcast_in_dim %53, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %61 = stablehlo.broadcast_in_dim %60, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x16x16x32xf32>
    %62 = stablehlo.subtract %51, %61 : tensor<2x16x16x32xf32>
    %cst_2 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %63 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %64 = stablehlo.add %55, %63 : tensor<32xf32>
    %65 = stablehlo.rsqrt %64 : tensor<32xf32>
    %66 = stablehlo.broadcast_in_dim %65, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %67 = stablehlo.broadcast_in_dim %66, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x16x16x32xf32>
    %68 = stablehlo.multiply %62, %67 : tensor<2x16x16x32xf32>
    %69 = stablehlo.broadcast_in_dim %57, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %70 = stablehlo.broadcast_in_dim %69, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x16x16x32xf32>
    %71 = stablehlo.multiply %68, %70 : tensor<2x16x16x32xf32>
    %72 = stablehlo.broadcast_in_dim %59, dims = [3] : (tensor<32xf32>) -> tensor<1x1x1x32xf32>
    %73 = stablehlo.broadcast_in_dim %72, dims = [0, 1, 2, 3] : (tensor<1x1x1x32xf32>) -> tensor<2x16x16x32xf32>
    %74 = stablehlo.add %71, %73 : tensor<2x16x16x32xf32>
    %75 = stablehlo.add %25, %74 : tensor<2x16x16x32xf32>
    %76 = call @relu_0(%75) : (tensor<2x16x16x32xf32>) -> tensor<2x16x16x32xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %77 = stablehlo.reduce(%76 init: %cst_3) applies stablehlo.add across dimensions = [1, 2] : (tensor<2x16x16x32xf32>, tensor<f32>) -> tensor<2x32xf32>
    %cst_4 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %78 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x32xf32>
    %79 = stablehlo.divide %77, %78 : tensor<2x32xf32>
    %80 = stablehlo.dot_general %79, %arg7, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x32xf32>, tensor<32x10xf32>) -> tensor<2x10xf32>
    %81 = stablehlo.broadcast_in_dim %arg8, dims = [1] : (tensor<10xf32>) -> tensor<1x10xf32>
    %82 = stablehlo.broadcast_in_dim %81, dims = [0, 1] : (tensor<1x10xf32>) -> tensor<2x10xf32>
    %83 = stablehlo.add %80, %82 : tensor<2x10xf32>
    return %83, %76 : tensor<2x10xf32>, tensor<2x16x16x32xf32>
  }
  func.func private @relu(%arg0: tensor<2x32x32x32xf32>) -> tensor<2x32x32x32xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x32x32x32xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x32x32x32xf32>
    return %1 : tensor<2x32x32x32xf32>
  }
  func.func private @relu_0(%arg0: tensor<2x16x16x32xf32>) -> tensor<2x16x16x32xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x16x16x32xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x16x16x32xf32>
    return %1 : tensor<2x16x16x32xf32>
  }
}
