module @jit_flat_train_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x5xf32>, %arg1: tensor<3xi32>, %arg2: tensor<i32>, %arg3: tensor<5x7xf32>, %arg4: tensor<7xf32>, %arg5: tensor<7x4xf32>, %arg6: tensor<4xf32>, %arg7: tensor<5x7xf32>, %arg8: tensor<7xf32>, %arg9: tensor<7x4xf32>, %arg10: tensor<4xf32>, %arg11: tensor<5x7xf32>, %arg12: tensor<7xf32>, %arg13: tensor<7x4xf32>, %arg14: tensor<4xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<i32> {jax.result_info = "result[1]"}, tensor<5x7xf32> {jax.result_info = "result[2][0]"}, tensor<7xf32> {jax.result_info = "result[2][1]"}, tensor<7x4xf32> {jax.result_info = "result[2][2]"}, tensor<4xf32> {jax.result_info = "result[2][3]"}, tensor<5x7xf32> {jax.result_info = "result[3][0]"}, tensor<7xf32> {jax.result_info = "result[3][1]"}, tensor<7x4xf32> {jax.result_info = "result[3][2]"}, tensor<4xf32> {jax.result_info = "result[3][3]"}, tensor<5x7xf32> {jax.result_info = "result[4][0]"}, tensor<7xf32> {jax.result_info = "result[4][1]"}, tensor<7x4xf32> {jax.result_info = "result[4][2]"}, tensor<4xf32> {jax.result_info = "result[4][3]"}) {
    %0 = stablehlo.dot_general %arg0, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x5xf32>, tensor<5x7xf32>) -> tensor<3x7xf32>
    %1 = stablehlo.broadcast_in_dim %arg4, dims = [1] : (tensor<7xf32>) -> tensor<1x7xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x7xf32>) -> tensor<3x7xf32>
    %3 = stablehlo.add %0, %2 : tensor<3x7xf32>
    %4 = call @relu(%3) : (tensor<3x7xf32>) -> tensor<3x7xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3x7xf32>
    %6 = stablehlo.compare GT, %3, %5, FLOAT : (tensor<3x7xf32>, tensor<3x7xf32>) -> tensor<3x7xi1>
    %7 = stablehlo.dot_general %4, %arg5, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x7xf32>, tensor<7x4xf32>) -> tensor<3x4xf32>
    %8 = stablehlo.broadcast_in_dim %arg6, dims = [1] : (tensor<4xf32>) -> tensor<1x4xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<1x4xf32>) -> tensor<3x4xf32>
    %10 = stablehlo.add %7, %9 : tensor<3x4xf32>
    %11 = call @_one_hot(%arg1) : (tensor<3xi32>) -> tensor<3x4xf32>
    %12:3 = call @log_softmax(%10) : (tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x1xf32>)
    %13 = stablehlo.multiply %11, %12#0 : tensor<3x4xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %14 = stablehlo.reduce(%13 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %15 = stablehlo.reduce(%14 init: %cst_1) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    %cst_2 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %16 = stablehlo.divide %15, %cst_2 : tensor<f32>
    %17 = stablehlo.negate %16 : tensor<f32>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %18 = stablehlo.negate %cst_3 : tensor<f32>
    %cst_4 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %19 = stablehlo.divide %18, %cst_4 : tensor<f32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %21 = stablehlo.broadcast_in_dim %20, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>
    %22 = stablehlo.multiply %11, %21 : tensor<3x4xf32>
    %23 = call @log_softmax_0(%12#1, %12#2, %22) : (tensor<3x4xf32>, tensor<3x1xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %24 = stablehlo.reduce(%23 init: %cst_5) applies stablehlo.add across dimensions = [0] : (tensor<3x4xf32>, tensor<f32>) -> tensor<4xf32>
    %25 = stablehlo.reshape %24 : (tensor<4xf32>) -> tensor<1x4xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %26 = stablehlo.reduce(%25 init: %cst_6) applies stablehlo.add across dimensions = [0] : (tensor<1x4xf32>, tensor<f32>) -> tensor<4xf32>
    %27 = stablehlo.dot_general %23, %4, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x4xf32>, tensor<3x7xf32>) -> tensor<4x7xf32>
    %28 = stablehlo.transpose %27, dims = [1, 0] : (tensor<4x7xf32>) -> tensor<7x4xf32>
    %29 = stablehlo.dot_general %23, %arg5, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<3x4xf32>, tensor<7x4xf32>) -> tensor<3x7xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %30 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<3x7xf32>
    %31 = stablehlo.select %6, %29, %30 : tensor<3x7xi1>, tensor<3x7xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %32 = stablehlo.reduce(%31 init: %cst_8) applies stablehlo.add across dimensions = [0] : (tensor<3x7xf32>, tensor<f32>) -> tensor<7xf32>
    %33 = stablehlo.reshape %32 : (tensor<7xf32>) -> tensor<1x7xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %34 = stablehlo.reduce(%33 init: %cst_9) applies stablehlo.add across dimensions = [0] : (tensor<1x7xf32>, tensor<f32>) -> tensor<7xf32>
    %35 = stablehlo.dot_general %31, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<3x7xf32>, tensor<3x5xf32>) -> tensor<7x5xf32>
    %36 = stablehlo.transpose %35, dims = [1, 0] : (tensor<7x5xf32>) -> tensor<5x7xf32>
    %c = stablehlo.constant dense<1> : tensor<i32>
    %37 = stablehlo.add %arg2, %c : tensor<i32>
    %38 = stablehlo.convert %37 : (tensor<i32>) -> tensor<f32>
    %cst_10 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %39 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %40 = stablehlo.multiply %39, %arg7 : tensor<5x7xf32>
    %cst_11 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %41 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %42 = stablehlo.multiply %41, %36 : tensor<5x7xf32>
    %43 = stablehlo.add %40, %42 : tensor<5x7xf32>
    %cst_12 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %44 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<7xf32>
    %45 = stablehlo.multiply %44, %arg8 : tensor<7xf32>
    %cst_13 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %46 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<7xf32>
    %47 = stablehlo.multiply %46, %34 : tensor<7xf32>
    %48 = stablehlo.add %45, %47 : tensor<7xf32>
    %cst_14 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %49 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<7x4xf32>
    %50 = stablehlo.multiply %49, %arg9 : tensor<7x4xf32>
    %cst_15 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %51 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<7x4xf32>
    %52 = stablehlo.multiply %51, %28 : tensor<7x4xf32>
    %53 = stablehlo.add %50, %52 : tensor<7x4xf32>
    %cst_16 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %54 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %55 = stablehlo.multiply %54, %arg10 : tensor<4xf32>
    %cst_17 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %56 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %57 = stablehlo.multiply %56, %26 : tensor<4xf32>
    %58 = stablehlo.add %55, %57 : tensor<4xf32>
    %cst_18 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %59 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %60 = stablehlo.multiply %59, %arg11 : tensor<5x7xf32>
    %cst_19 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %61 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %62 = stablehlo.multiply %61, %36 : tensor<5x7xf32>
    %63 = stablehlo.multiply %62, %36 : tensor<5x7xf32>
    %64 = stablehlo.add %60, %63 : tensor<5x7xf32>
    %cst_20 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %65 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<7xf32>
    %66 = stablehlo.multiply %65, %arg12 : tensor<7xf32>
    %cst_21 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %67 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<7xf32>
    %68 = stablehlo.multiply %67, %34 : tensor<7xf32>
    %69 = stablehlo.multiply %68, %34 : tensor<7xf32>
    %70 = stablehlo.add %66, %69 : tensor<7xf32>
    %cst_22 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %71 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<7x4xf32>
    %72 = stablehlo.multiply %71, %arg13 : tensor<7x4xf32>
    %cst_23 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %73 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<f32>) -> tensor<7x4xf32>
    %74 = stablehlo.multiply %73, %28 : tensor<7x4xf32>
    %75 = stablehlo.multiply %74, %28 : tensor<7x4xf32>
    %76 = stablehlo.add %72, %75 : tensor<7x4xf32>
    %cst_24 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %77 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %78 = stablehlo.multiply %77, %arg14 : tensor<4xf32>
    %cst_25 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %79 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %80 = stablehlo.multiply %79, %26 : tensor<4xf32>
    %81 = stablehlo.multiply %80, %26 : tensor<4xf32>
    %82 = stablehlo.add %78, %81 : tensor<4xf32>
    %cst_26 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %83 = stablehlo.power %cst_26, %38 : tensor<f32>
    %cst_27 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %84 = stablehlo.subtract %cst_27, %83 : tensor<f32>
    %cst_28 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %85 = stablehlo.divide %cst_28, %84 : tensor<f32>
    %cst_29 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %86 = stablehlo.power %cst_29, %38 : tensor<f32>
    %cst_30 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %87 = stablehlo.subtract %cst_30, %86 : tensor<f32>
    %cst_31 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %88 = stablehlo.divide %cst_31, %87 : tensor<f32>
    %89 = stablehlo.broadcast_in_dim %85, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %90 = stablehlo.multiply %43, %89 : tensor<5x7xf32>
    %cst_32 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %91 = stablehlo.broadcast_in_dim %cst_32, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %92 = stablehlo.multiply %91, %90 : tensor<5x7xf32>
    %93 = stablehlo.broadcast_in_dim %88, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %94 = stablehlo.multiply %64, %93 : tensor<5x7xf32>
    %95 = stablehlo.sqrt %94 : tensor<5x7xf32>
    %cst_33 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %96 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %97 = stablehlo.add %95, %96 : tensor<5x7xf32>
    %98 = stablehlo.divide %92, %97 : tensor<5x7xf32>
    %99 = stablehlo.subtract %arg3, %98 : tensor<5x7xf32>
    %100 = stablehlo.broadcast_in_dim %85, dims = [] : (tensor<f32>) -> tensor<7xf32>
    %101 = stablehlo.multiply %48, %100 : tensor<7xf32>
    %cst_34 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %102 = stablehlo.broadcast_in_dim %cst_34, dims = [] : (tensor<f32>) -> tensor<7xf32>
    %103 = stablehlo.multiply %102, %101 : tensor<7xf32>
    %104 = stablehlo.broadcast_in_dim %88, dims = [] : (tensor<f32>) -> tensor<7xf32>
    %105 = stablehlo.multiply %70, %104 : tensor<7xf32>
    %106 = stablehlo.sqrt %105 : tensor<7xf32>
    %cst_35 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %107 = stablehlo.broadcast_in_dim %cst_35, dims = [] : (tensor<f32>) -> tensor<7xf32>
    %108 = stablehlo.add %106, %107 : tensor<7xf32>
    %109 = stablehlo.divide %103, %108 : tensor<7xf32>
    %110 = stablehlo.subtract %arg4, %109 : tensor<7xf32>
    %111 = stablehlo.broadcast_in_dim %85, dims = [] : (tensor<f32>) -> tensor<7x4xf32>
    %112 = stablehlo.multiply %53, %111 : tensor<7x4xf32>
    %cst_36 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %113 = stablehlo.broadcast_in_dim %cst_36, dims = [] : (tensor<f32>) -> tensor<7x4xf32>
    %114 = stablehlo.multiply %113, %112 : tensor<7x4xf32>
    %115 = stablehlo.broadcast_in_dim %88, dims = [] : (tensor<f32>) -> tensor<7x4xf32>
    %116 = stablehlo.multiply %76, %115 : tensor<7x4xf32>
    %117 = stablehlo.sqrt %116 : tensor<7x4xf32>
    %cst_37 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %118 = stablehlo.broadcast_in_dim %cst_37, dims = [] : (tensor<f32>) -> tensor<7x4xf32>
    %119 = stablehlo.add %117, %118 : tensor<7x4xf32>
    %120 = stablehlo.divide %114, %119 : tensor<7x4xf32>
    %121 = stablehlo.subtract %arg5, %120 : tensor<7x4xf32>
    %122 = stablehlo.broadcast_in_dim %85, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %123 = stablehlo.multiply %58, %122 : tensor<4xf32>
    %cst_38 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %124 = stablehlo.broadcast_in_dim %cst_38, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %125 = stablehlo.multiply %124, %123 : tensor<4xf32>
    %126 = stablehlo.broadcast_in_dim %88, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %127 = stablehlo.multiply %82, %126 : tensor<4xf32>
    %128 = stablehlo.sqrt %127 : tensor<4xf32>
    %cst_39 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %129 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %130 = stablehlo.add %128, %129 : tensor<4xf32>
    %131 = stablehlo.divide %125, %130 : tensor<4xf32>
    %132 = stablehlo.subtract %arg6, %131 : tensor<4xf32>
    return %17, %37, %99, %110, %121, %132, %43, %48, %53, %58, %64, %70, %76, %82 : tensor<f32>, tensor<i32>, tensor<5x7xf32>, tensor<7xf32>, tensor<7x4xf32>, tensor<4xf32>, tensor<5x7xf32>, tensor<7xf32>, tensor<7x4xf32>, tensor<4xf32>, tensor<5x7xf32>, tensor<7xf32>, tensor<7x4xf32>, tensor<4xf32>
  }
  func.func private @relu(%arg0: tensor<3x7xf32>) -> tensor<3x7xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3x7xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<3x7xf32>
    return %1 : tensor<3x7xf32>
  }
  func.func private @_one_hot(%arg0: tensor<3xi32>) -> tensor<3x4xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0] : (tensor<3xi32>) -> tensor<3x1xi32>
    %1 = stablehlo.iota dim = 1 : tensor<1x4xi32>
    %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<3x1xi32>) -> tensor<3x4xi32>
    %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x4xi32>) -> tensor<3x4xi32>
    %4 = stablehlo.compare EQ, %2, %3, SIGNED : (tensor<3x4xi32>, tensor<3x4xi32>) -> tensor<3x4xi1>
    %5 = stablehlo.convert %4 : (tensor<3x4xi1>) -> tensor<3x4xf32>
    return %5 : tensor<3x4xf32>
  }
  func.func private @log_softmax(%arg0: tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x1xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<3xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<3xf32>) -> tensor<3x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<3x1xf32>) -> tensor<3x4xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<3x4xf32>
    %6 = stablehlo.exponential %5 : tensor<3x4xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<3xf32>) -> tensor<3x1xf32>
    %9 = stablehlo.log %8 : tensor<3x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<3x1xf32>) -> tensor<3x4xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<3x4xf32>
    return %11, %6, %8 : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x1xf32>
  }
  func.func private @log_softmax_0(%arg0: tensor<3x4xf32>, %arg1: tensor<3x1xf32>, %arg2: tensor<3x4xf32>) -> tensor<3x4xf32> {
    %0 = stablehlo.negate %arg2 : tensor<3x4xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
    %2 = stablehlo.reshape %1 : (tensor<3xf32>) -> tensor<3x1xf32>
    %3 = stablehlo.divide %2, %arg1 : tensor<3x1xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<3x1xf32>, tensor<f32>) -> tensor<3xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>
    %6 = stablehlo.multiply %5, %arg0 : tensor<3x4xf32>
    %7 = stablehlo.add %arg2, %6 : tensor<3x4xf32>
    return %7 : tensor<3x4xf32>
  }
}
