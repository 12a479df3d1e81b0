module @jit_gpt2_block attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x4xi32>, %arg1: tensor<11x16xf32>, %arg2: tensor<4x16xf32>, %arg3: tensor<16xf32>, %arg4: tensor<16xf32>, %arg5: tensor<16x48xf32>, %arg6: tensor<48xf32>, %arg7: tensor<16x16xf32>, %arg8: tensor<16xf32>, %arg9: tensor<16xf32>, %arg10: tensor<16xf32>, %arg11: tensor<16x64xf32>, %arg12: tensor<64xf32>, %arg13: tensor<64x16xf32>, %arg14: tensor<16xf32>) -> (tensor<2x4x16xf32> {jax.result_info = "result"}) {
    %0 = call @_take(%arg1, %arg0) : (tensor<11x16xf32>, tensor<2x4xi32>) -> tensor<2x4x16xf32>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [1, 2] : (tensor<4x16xf32>) -> tensor<1x4x16xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<1x4x16xf32>) -> tensor<2x4x16xf32>
    %3 = stablehlo.add %0, %2 : tensor<2x4x16xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x4x16xf32>, tensor<f32>) -> tensor<2x4xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_0 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %7 = stablehlo.divide %5, %6 : tensor<2x4x1xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x16xf32>
    %9 = stablehlo.subtract %3, %8 : tensor<2x4x16xf32>
    %10 = chlo.square %9 : tensor<2x4x16xf32> -> tensor<2x4x16xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x4x16xf32>, tensor<f32>) -> tensor<2x4xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_2 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %14 = stablehlo.divide %12, %13 : tensor<2x4x1xf32>
    %15 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x16xf32>
    %16 = stablehlo.subtract %3, %15 : tensor<2x4x16xf32>
    %cst_3 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %17 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %18 = stablehlo.add %14, %17 : tensor<2x4x1xf32>
    %19 = stablehlo.rsqrt %18 : tensor<2x4x1xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x16xf32>
    %21 = stablehlo.multiply %16, %20 : tensor<2x4x16xf32>
    %22 = stablehlo.broadcast_in_dim %arg3, dims = [2] : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %23 = stablehlo.broadcast_in_dim %22, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x4x16xf32>
    %24 = stablehlo.multiply %21, %23 : tensor<2x4x16xf32>
    %25 = stablehlo.broadcast_in_dim %arg4, dims = [2] : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %26 = stablehlo.broadcast_in_dim %25, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x4x16xf32>
    %27 = stablehlo.add %24, %26 : tensor<2x4x16xf32>
    %28 = stablehlo.dot_general %27, %arg5, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x4x16xf32>, tensor<16x48xf32>) -> tensor<2x4x48xf32>
    %29 = stablehlo.broadcast_in_dim %arg6, dims = [2] : (tensor<48xf32>) -> tensor<1x1x48xf32>
    %30 = stablehlo.broadcast_in_dim %29, dims = [0, 1, 2] : (tensor<1x1x48xf32>) -> tensor<2x4x48xf32>
    %31 = stablehlo.add %28, %30 : tensor<2x4x48xf32>
    %32 = stablehlo.reshape %31 : (tensor<2x4x48xf32>) -> tensor<2x4x3x2x8xf32>
    %33 = stablehlo.slice %32 [0:2, 0:4, 0:1, 0:2, 0:8] : (tensor<2x4x3x2x8xf32>) -> tensor<2x4x1x2x8xf32>
    %34 = stablehlo.reshape %33 : (tensor<2x4x1x2x8xf32>) -> tensor<2x4x2x8xf32>
    %35 = stablehlo.transpose %34, dims = [0, 2, 1, 3] : (tensor<2x4x2x8xf32>) -> tensor<2x2x4x8xf32>
    %36 = stablehlo.slice %32 [0:2, 0:4, 1:2, 0:2, 0:8] : (tensor<2x4x3x2x8xf32>) -> tensor<2x4x1x2x8xf32>
    %37 = stablehlo.reshape %36 : (tensor<2x4x1x2x8xf32>) -> tensor<2x4x2x8xf32>
    %38 = stablehlo.transpose %37, dims = [0, 2, 1, 3] : (tensor<2x4x2x8xf32>) -> tensor<2x2x4x8xf32>
    %39 = stablehlo.slice %32 [0:2, 0:4, 2:3, 0:2, 0:8] : (tensor<2x4x3x2x8xf32>) -> tensor<2x4x1x2x8xf32>
    %40 = stablehlo.reshape %39 : (tensor<2x4x1x2x8xf32>) -> tensor<2x4x2x8xf32>
    %41 = stablehlo.transpose %40, dims = [0, 2, 1, 3] : (tensor<2x4x2x8xf32>) -> tensor<2x2x4x8xf32>
    %42 = stablehlo.dot_general %35, %38, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x2x4x8xf32>, tensor<2x2x4x8xf32>) -> tensor<2x2x4x4xf32>
    %cst_4 = stablehlo.constant dense<0.353553385> : tensor<f32>
    %43 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x2x4x4xf32>
    %44 = stablehlo.multiply %42, %43 : tensor<2x2x4x4xf32>
    %45 = stablehlo.iota dim = 0 : tensor<4xi32>
    %46 = stablehlo.broadcast_in_dim %45, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
    %47 = stablehlo.broadcast_in_dim %45, dims = [1] : (tensor<4xi32>) -> tensor<1x4xi32>
    %48 = stablehlo.broadcast_in_dim %46, dims = [0, 1] : (tensor<4x1xi32>) -> tensor<4x4xi32>
    %49 = stablehlo.broadcast_in_dim %47, dims = [0, 1] : (tensor<1x4xi32>) -> tensor<4x4xi32>
    %50 = stablehlo.compare GE, %48, %49, SIGNED : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi1>
    %cst_5 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %51 = call @_where(%50, %44, %cst_5) : (tensor<4x4xi1>, tensor<2x2x4x4xf32>, tensor<f32>) -> tensor<2x2x4x4xf32>
    %cst_6 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %52 = stablehlo.reduce(%51 init: %cst_6) applies stablehlo.maximum across dimensions = [3] : (tensor<2x2x4x4xf32>, tensor<f32>) -> tensor<2x2x4xf32>
    %cst_7 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %53 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<2x2x4xf32>
    %54 = stablehlo.maximum %53, %52 : tensor<2x2x4xf32>
    %55 = stablehlo.broadcast_in_dim %54, dims = [0, 1, 2] : (tensor<2x2x4xf32>) -> tensor<2x2x4x1xf32>
    %56 = stablehlo.broadcast_in_dim %55, dims = [0, 1, 2, 3] : (tensor<2x2x4x1xf32>) -> tensor<2x2x4x4xf32>
    %57 = stablehlo.subtract %51, %56 : tensor<2x2x4x4xf32>
    %58 = stablehlo.exponential %57 : tensor<2x2x4x4xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %59 = stablehlo.reduce(%58 init: %cst_8) applies stablehlo.add across dimensions = [3] : (tensor<2x2x4x4xf32>, tensor<f32>) -> tensor<2x2x4xf32>
    %60 = stablehlo.broadcast_in_dim %59, dims = [0, 1, 2] : (tensor<2x2x4xf32>) -> tensor<2x2x4x1xf32>
    %61 = stablehlo.broadcast_in_dim %60, dims = [0, 1, 2, 3] : (tensor<2x2x4x1xf32>) -> tensor<2x2x4x4xf32>
    %62 = stablehlo.divide %58, %61 : tensor<2x2x4x4xf32>
    %63 = stablehlo.dot_general %62, %41, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x2x4x4xf32>, tensor<2x2x4x8xf32>) -> tensor<2x2x4x8xf32>
    %64 = stablehlo.transpose %63, dims = [0, 2, 1, 3] : (tensor<2x2x4x8xf32>) -> tensor<2x4x2x8xf32>
    %65 = stablehlo.reshape %64 : (tensor<2x4x2x8xf32>) -> tensor<2x4x16xf32>
    %66 = stablehlo.dot_general %65, %arg7, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x4x16xf32>, tensor<16x16xf32>) -> tensor<2x4x16xf32>
    %67 = stablehlo.broadcast_in_dim %arg8, dims = [2] : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %68 = stablehlo.broadcast_in_dim %67, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x4x16xf32>
    %69 = stablehlo.add %66, %68 : tensor<2x4x16xf32>
    %70 = stablehlo.add %3, %69 : tensor<2x4x16xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %71 = stablehlo.reduce(%70 init: %cst_9) applies stablehlo.add across dimensions = [2] : (tensor<2x4x16xf32>, tensor<f32>) -> tensor<2x4xf32>
    %72 = stablehlo.broadcast_in_dim %71, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_10 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %73 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %74 = stablehlo.divide %72, %73 : tensor<2x4x1xf32>
    %75 = stablehlo.broadcast_in_dim %74, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x16xf32>
    %76 = stablehlo.subtract %70, %75 : tensor<2x4x16xf32>
    %77 = chlo.square %76 : tensor<2x4x16xf32> -> tensor<2x4x16xf32>
    %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %78 = stablehlo.reduce(%77 init: %cst_11) applies stablehlo.add across dimensions = [2] : (tensor<2x4x16xf32>, tensor<f32>) -> tensor<2x4xf32>
    %79 = stablehlo.broadcast_in_dim %78, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_12 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %80 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %81 = stablehlo.divide %79, %80 : tensor<2x4x1xf32>
    %82 = stablehlo.broadcast_in_dim %74, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x16xf32>
    %83 = stablehlo.subtract %70, %82 : tensor<2x4x16xf32>
    %cst_13 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %84 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %85 = stablehlo.add %81, %84 : tensor<2x4x1xf32>
    %86 = stablehlo.rsqrt %85 : tensor<2x4x1xf32>
    %87 = stablehlo.broadcast_in_dim %86, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x16xf32>
    %88 = stablehlo.multiply %83, %87 : tensor<2x4x16xf32>
    %89 = stablehlo.broadcast_in_dim %arg9, dims = [2] : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %90 = stablehlo.broadcast_in_dim %89, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x4x16xf32>
    %91 = stablehlo.multiply %88, %90 : tensor<2x4x16xf32>
    %92 = stablehlo.broadcast_in_dim %arg10, dims = [2] : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %93 = stablehlo.broadcast_in_dim %92, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x4x16xf32>
    %94 = stablehlo.add %91, %93 : tensor<2x4x16xf32>
    %95 = stablehlo.dot_general %94, %arg11, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x4x16xf32>, tensor<16x64xf32>) -> tensor<2x4x64xf32>
    %96 = stablehlo.broadcast_in_dim %arg12, dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
    %97 = stablehlo.broadcast_in_dim %96, dims = [0, 1, 2] : (tensor<1x1x64xf32>) -> tensor<2x4x64xf32>
    %98 = stablehlo.add %95, %97 : tensor<2x4x64xf32>
    %99 = stablehlo.multiply %98, %98 : tensor<2x4x64xf32>
    %100 = stablehlo.multiply %99, %98 : tensor<2x4x64xf32>
    %cst_14 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %101 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<2x4x64xf32>
    %102 = stablehlo.multiply %101, %100 : tensor<2x4x64xf32>
    %103 = stablehlo.add %98, %102 : tensor<2x4x64xf32>
    %cst_15 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %104 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<2x4x64xf32>
    %105 = stablehlo.multiply %104, %103 : tensor<2x4x64xf32>
    %106 = stablehlo.tanh %105 : tensor<2x4x64xf32>
    %cst_16 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %107 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<2x4x64xf32>
    %108 = stablehlo.add %107, %106 : tensor<2x4x64xf32>
    %cst_17 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %109 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<2x4x64xf32>
    %110 = stablehlo.multiply %109, %108 : tensor<2x4x64xf32>
    %111 = stablehlo.multiply %98, %110 : tensor<2x4x64xf32>
    %112 = stablehlo.dot_general %111, %arg13, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x4x64xf32>, tensor<64x16xf32>) -> tensor<2x4x16xf32>
    %113 = stablehlo.add %70, %112 : tensor<2x4x16xf32>
    %114 = stablehlo.broadcast_in_dim %arg14, dims = [2] : (tensor<16xf32>) -> tensor<1x1x16xf32>
    %115 = stablehlo.broadcast_in_dim %114, dims = [0, 1, 2] : (tensor<1x1x16xf32>) -> tensor<2x4x16xf32>
    %116 = stablehlo.add %113, %115 : tensor<2x4x16xf32>
    return %116 : tensor<2x4x16xf32>
  }
  func.func private @_take(%arg0: tensor<11x16xf32>, %arg1: tensor<2x4xi32>) -> tensor<2x4x16xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [0, 1] : (tensor<2x4xi32>) -> tensor<2x4x1xi32>
    %1 = "stablehlo.gather"(%arg0, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 16>}> : (tensor<11x16xf32>, tensor<2x4x1xi32>) -> tensor<2x4x16xf32>
    return %1 : tensor<2x4x16xf32>
  }
  func.func private @_where(%arg0: tensor<4x4xi1>, %arg1: tensor<2x2x4x4xf32>, %arg2: tensor<f32>) -> tensor<2x2x4x4xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [2, 3] : (tensor<4x4xi1>) -> tensor<2x2x4x4xi1>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x2x4x4xf32>
    %3 = stablehlo.select %1, %arg1, %2 : tensor<2x2x4x4xi1>, tensor<2x2x4x4xf32>
    return %3 : tensor<2x2x4x4xf32>
  }
}
