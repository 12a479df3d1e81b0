module @jit_flat_train_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<32x64xf32>, %arg1: tensor<32xi32>, %arg2: tensor<i32>, %arg3: tensor<64x128xf32>, %arg4: tensor<128xf32>, %arg5: tensor<128x64xf32>, %arg6: tensor<64xf32>, %arg7: tensor<64x10xf32>, %arg8: tensor<10xf32>, %arg9: tensor<64x128xf32>, %arg10: tensor<128xf32>, %arg11: tensor<128x64xf32>, %arg12: tensor<64xf32>, %arg13: tensor<64x10xf32>, %arg14: tensor<10xf32>, %arg15: tensor<64x128xf32>, %arg16: tensor<128xf32>, %arg17: tensor<128x64xf32>, %arg18: tensor<64xf32>, %arg19: tensor<64x10xf32>, %arg20: tensor<10xf32>) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<i32> {jax.result_info = "result[1]"}, tensor<64x128xf32> {jax.result_info = "result[2][0]"}, tensor<128xf32> {jax.result_info = "result[2][1]"}, tensor<128x64xf32> {jax.result_info = "result[2][2]"}, tensor<64xf32> {jax.result_info = "result[2][3]"}, tensor<64x10xf32> {jax.result_info = "result[2][4]"}, tensor<10xf32> {jax.result_info = "result[2][5]"}, tensor<64x128xf32> {jax.result_info = "result[3][0]"}, tensor<128xf32> {jax.result_info = "result[3][1]"}, tensor<128x64xf32> {jax.result_info = "result[3][2]"}, tensor<64xf32> {jax.result_info = "result[3][3]"}, tensor<64x10xf32> {jax.result_info = "result[3][4]"}, tensor<10xf32> {jax.result_info = "result[3][5]"}, tensor<64x128xf32> {jax.result_info = "result[4][0]"}, tensor<128xf32> {jax.result_info = "result[4][1]"}, tensor<128x64xf32> {jax.result_info = "result[4][2]"}, tensor<64xf32> {jax.result_info = "result[4][3]"}, tensor<64x10xf32> {jax.result_info = "result[4][4]"}, tensor<10xf32> {jax.result_info = "result[4][5]"}) {
    %0 = stablehlo.dot_general %arg0, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x64xf32>, tensor<64x128xf32>) -> tensor<32x128xf32>
    %1 = stablehlo.broadcast_in_dim %arg4, dims = [1] : (tensor<128xf32>) -> tensor<1x128xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x128xf32>) -> tensor<32x128xf32>
    %3 = stablehlo.add %0, %2 : tensor<32x128xf32>
    %4 = call @relu(%3) : (tensor<32x128xf32>) -> tensor<32x128xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %6 = stablehlo.compare GT, %3, %5, FLOAT : (tensor<32x128xf32>, tensor<32x128xf32>) -> tensor<32x128xi1>
    %7 = stablehlo.dot_general %4, %arg5, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x128xf32>, tensor<128x64xf32>) -> tensor<32x64xf32>
    %8 = stablehlo.broadcast_in_dim %arg6, dims = [1] : (tensor<64xf32>) -> tensor<1x64xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<1x64xf32>) -> tensor<32x64xf32>
    %10 = stablehlo.add %7, %9 : tensor<32x64xf32>
    %11 = call @relu_0(%10) : (tensor<32x64xf32>) -> tensor<32x64xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<32x64xf32>
    %13 = stablehlo.compare GT, %10, %12, FLOAT : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x64xi1>
    %14 = stablehlo.dot_general %11, %arg7, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x64xf32>, tensor<64x10xf32>) -> tensor<32x10xf32>
    %15 = stablehlo.broadcast_in_dim %arg8, dims = [1] : (tensor<10xf32>) -> tensor<1x10xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1] : (tensor<1x10xf32>) -> tensor<32x10xf32>
    %17 = stablehlo.add %14, %16 : tensor<32x10xf32>
    %18 = call @_one_hot(%arg1) : (tensor<32xi32>) -> tensor<32x10xf32>
    %19:3 = call @log_softmax(%17) : (tensor<32x10xf32>) -> (tensor<32x10xf32>, tensor<32x10xf32>, tensor<32x1xf32>)
    %20 = stablehlo.multiply %18, %19#0 : tensor<32x10xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %21 = stablehlo.reduce(%20 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<32x10xf32>, tensor<f32>) -> tensor<32xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %22 = stablehlo.reduce(%21 init: %cst_2) applies stablehlo.add across dimensions = [0] : (tensor<32xf32>, tensor<f32>) -> tensor<f32>
    %cst_3 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %23 = stablehlo.divide %22, %cst_3 : tensor<f32>
    %24 = stablehlo.negate %23 : tensor<f32>
    %cst_4 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %25 = stablehlo.negate %cst_4 : tensor<f32>
    %cst_5 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %26 = stablehlo.divide %25, %cst_5 : tensor<f32>
    %27 = stablehlo.broadcast_in_dim %26, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0] : (tensor<32xf32>) -> tensor<32x10xf32>
    %29 = stablehlo.multiply %18, %28 : tensor<32x10xf32>
    %30 = call @log_softmax_1(%19#1, %19#2, %29) : (tensor<32x10xf32>, tensor<32x1xf32>, tensor<32x10xf32>) -> tensor<32x10xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %31 = stablehlo.reduce(%30 init: %cst_6) applies stablehlo.add across dimensions = [0] : (tensor<32x10xf32>, tensor<f32>) -> tensor<10xf32>
    %32 = stablehlo.reshape %31 : (tensor<10xf32>) -> tensor<1x10xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %33 = stablehlo.reduce(%32 init: %cst_7) applies stablehlo.add across dimensions = [0] : (tensor<1x10xf32>, tensor<f32>) -> tensor<10xf32>
    %34 = stablehlo.dot_general %30, %11, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x10xf32>, tensor<32x64xf32>) -> tensor<10x64xf32>
    %35 = stablehlo.transpose %34, dims = [1, 0] : (tensor<10x64xf32>) -> tensor<64x10xf32>
    %36 = stablehlo.dot_general %30, %arg7, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<32x10xf32>, tensor<64x10xf32>) -> tensor<32x64xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %37 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<32x64xf32>
    %38 = stablehlo.select %13, %36, %37 : tensor<32x64xi1>, tensor<32x64xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %39 = stablehlo.reduce(%38 init: %cst_9) applies stablehlo.add across dimensions = [0] : (tensor<32x64xf32>, tensor<f32>) -> tensor<64xf32>
    %40 = stablehlo.reshape %39 : (tensor<64xf32>) -> tensor<1x64xf32>
    %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %41 = stablehlo.reduce(%40 init: %cst_10) applies stablehlo.add across dimensions = [0] : (tensor<1x64xf32>, tensor<f32>) -> tensor<64xf32>
    %42 = stablehlo.dot_general %38, %4, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x64xf32>, tensor<32x128xf32>) -> tensor<64x128xf32>
    %43 = stablehlo.transpose %42, dims = [1, 0] : (tensor<64x128xf32>) -> tensor<128x64xf32>
    %44 = stablehlo.dot_general %38, %arg5, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<32x64xf32>, tensor<128x64xf32>) -> tensor<32x128xf32>
    %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %45 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %46 = stablehlo.select %6, %44, %45 : tensor<32x128xi1>, tensor<32x128xf32>
    %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %47 = stablehlo.reduce(%46 init: %cst_12) applies stablehlo.add across dimensions = [0] : (tensor<32x128xf32>, tensor<f32>) -> tensor<128xf32>
    %48 = stablehlo.reshape %47 : (tensor<128xf32>) -> tensor<1x128xf32>
    %cst_13 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %49 = stablehlo.reduce(%48 init: %cst_13) applies stablehlo.add across dimensions = [0] : (tensor<1x128xf32>, tensor<f32>) -> tensor<128xf32>
    %50 = stablehlo.dot_general %46, %arg0, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x128xf32>, tensor<32x64xf32>) -> tensor<128x64xf32>
    %51 = stablehlo.transpose %50, dims = [1, 0] : (tensor<128x64xf32>) -> tensor<64x128xf32>
    %c = stablehlo.constant dense<1> : tensor<i32>
    %52 = stablehlo.add %arg2, %c : tensor<i32>
    %53 = stablehlo.convert %52 : (tensor<i32>) -> tensor<f32>
    %cst_14 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %54 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %55 = stablehlo.multiply %54, %arg9 : tensor<64x128xf32>
    %cst_15 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %56 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %57 = stablehlo.multiply %56, %51 : tensor<64x128xf32>
    %58 = stablehlo.add %55, %57 : tensor<64x128xf32>
    %cst_16 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %59 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %60 = stablehlo.multiply %59, %arg10 : tensor<128xf32>
    %cst_17 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %61 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %62 = stablehlo.multiply %61, %49 : tensor<128xf32>
    %63 = stablehlo.add %60, %62 : tensor<128xf32>
    %cst_18 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %64 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %65 = stablehlo.multiply %64, %arg11 : tensor<128x64xf32>
    %cst_19 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %66 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %67 = stablehlo.multiply %66, %43 : tensor<128x64xf32>
    %68 = stablehlo.add %65, %67 : tensor<128x64xf32>
    %cst_20 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %69 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %70 = stablehlo.multiply %69, %arg12 : tensor<64xf32>
    %cst_21 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %71 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %72 = stablehlo.multiply %71, %41 : tensor<64xf32>
    %73 = stablehlo.add %70, %72 : tensor<64xf32>
    %cst_22 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %74 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %75 = stablehlo.multiply %74, %arg13 : tensor<64x10xf32>
    %cst_23 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %76 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %77 = stablehlo.multiply %76, %35 : tensor<64x10xf32>
    %78 = stablehlo.add %75, %77 : tensor<64x10xf32>
    %cst_24 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %79 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %80 = stablehlo.multiply %79, %arg14 : tensor<10xf32>
    %cst_25 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %81 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %82 = stablehlo.multiply %81, %33 : tensor<10xf32>
    %83 = stablehlo.add %80, %82 : tensor<10xf32>
    %cst_26 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %84 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %85 = stablehlo.multiply %84, %arg15 : tensor<64x128xf32>
    %cst_27 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %86 = stablehlo.broadcast_in_dim %cst_27, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %87 = stablehlo.multiply %86, %51 : tensor<64x128xf32>
    %88 = stablehlo.multiply %87, %51 : tensor<64x128xf32>
    %89 = stablehlo.add %85, %88 : tensor<64x128xf32>
    %cst_28 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %90 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %91 = stablehlo.multiply %90, %arg16 : tensor<128xf32>
    %cst_29 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %92 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %93 = stablehlo.multiply %92, %49 : tensor<128xf32>
    %94 = stablehlo.multiply %93, %49 : tensor<128xf32>
    %95 = stablehlo.add %91, %94 : tensor<128xf32>
    %cst_30 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %96 = stablehlo.broadcast_in_dim %cst_30, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %97 = stablehlo.multiply %96, %arg17 : tensor<128x64xf32>
    %cst_31 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %98 = stablehlo.broadcast_in_dim %cst_31, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %99 = stablehlo.multiply %98, %43 : tensor<128x64xf32>
    %100 = stablehlo.multiply %99, %43 : tensor<128x64xf32>
    %101 = stablehlo.add %97, %100 : tensor<128x64xf32>
    %cst_32 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %102 = stablehlo.broadcast_in_dim %cst_32, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %103 = stablehlo.multiply %102, %arg18 : tensor<64xf32>
    %cst_33 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %104 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %105 = stablehlo.multiply %104, %41 : tensor<64xf32>
    %106 = stablehlo.multiply %105, %41 : tensor<64xf32>
    %107 = stablehlo.add %103, %106 : tensor<64xf32>
    %cst_34 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %108 = stablehlo.broadcast_in_dim %cst_34, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %109 = stablehlo.multiply %108, %arg19 : tensor<64x10xf32>
    %cst_35 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %110 = stablehlo.broadcast_in_dim %cst_35, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %111 = stablehlo.multiply %110, %35 : tensor<64x10xf32>
    %112 = stablehlo.multiply %111, %35 : tensor<64x10xf32>
    %113 = stablehlo.add %109, %112 : tensor<64x10xf32>
    %cst_36 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %114 = stablehlo.broadcast_in_dim %cst_36, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %115 = stablehlo.multiply %114, %arg20 : tensor<10xf32>
    %cst_37 = stablehlo.constant dense<1.000000e-03> : tensor<f32>
    %116 = stablehlo.broadcast_in_dim %cst_37, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %117 = stablehlo.multiply %116, %33 : tensor<10xf32>
    %118 = stablehlo.multiply %117, %33 : tensor<10xf32>
    %119 = stablehlo.add %115, %118 : tensor<10xf32>
    %cst_38 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %120 = stablehlo.power %cst_38, %53 : tensor<f32>
    %cst_39 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %121 = stablehlo.subtract %cst_39, %120 : tensor<f32>
    %cst_40 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %122 = stablehlo.divide %cst_40, %121 : tensor<f32>
    %cst_41 = stablehlo.constant dense<9.990000e-01> : tensor<f32>
    %123 = stablehlo.power %cst_41, %53 : tensor<f32>
    %cst_42 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %124 = stablehlo.subtract %cst_42, %123 : tensor<f32>
    %cst_43 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %125 = stablehlo.divide %cst_43, %124 : tensor<f32>
    %126 = stablehlo.broadcast_in_dim %122, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %127 = stablehlo.multiply %58, %126 : tensor<64x128xf32>
    %cst_44 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %128 = stablehlo.broadcast_in_dim %cst_44, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %129 = stablehlo.multiply %128, %127 : tensor<64x128xf32>
    %130 = stablehlo.broadcast_in_dim %125, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %131 = stablehlo.multiply %89, %130 : tensor<64x128xf32>
    %132 = stablehlo.sqrt %131 : tensor<64x128xf32>
    %cst_45 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %133 = stablehlo.broadcast_in_dim %cst_45, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %134 = stablehlo.add %132, %133 : tensor<64x128xf32>
    %135 = stablehlo.divide %129, %134 : tensor<64x128xf32>
    %136 = stablehlo.subtract %arg3, %135 : tensor<64x128xf32>
    %137 = stablehlo.broadcast_in_dim %122, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %138 = stablehlo.multiply %63, %137 : tensor<128xf32>
    %cst_46 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %139 = stablehlo.broadcast_in_dim %cst_46, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %140 = stablehlo.multiply %139, %138 : tensor<128xf32>
    %141 = stablehlo.broadcast_in_dim %125, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %142 = stablehlo.multiply %95, %141 : tensor<128xf32>
    %143 = stablehlo.sqrt %142 : tensor<128xf32>
    %cst_47 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %144 = stablehlo.broadcast_in_dim %cst_47, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %145 = stablehlo.add %143, %144 : tensor<128xf32>
    %146 = stablehlo.divide %140, %145 : tensor<128xf32>
    %147 = stablehlo.subtract %arg4, %146 : tensor<128xf32>
    %148 = stablehlo.broadcast_in_dim %122, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %149 = stablehlo.multiply %68, %148 : tensor<128x64xf32>
    %cst_48 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %150 = stablehlo.broadcast_in_dim %cst_48, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %151 = stablehlo.multiply %150, %149 : tensor<128x64xf32>
    %152 = stablehlo.broadcast_in_dim %125, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %153 = stablehlo.multiply %101, %152 : tensor<128x64xf32>
    %154 = stablehlo.sqrt %153 : tensor<128x64xf32>
    %cst_49 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %155 = stablehlo.broadcast_in_dim %cst_49, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %156 = stablehlo.add %154, %155 : tensor<128x64xf32>
    %157 = stablehlo.divide %151, %156 : tensor<128x64xf32>
    %158 = stablehlo.subtract %arg5, %157 : tensor<128x64xf32>
    %159 = stablehlo.broadcast_in_dim %122, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %160 = stablehlo.multiply %73, %159 : tensor<64xf32>
    %cst_50 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %161 = stablehlo.broadcast_in_dim %cst_50, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %162 = stablehlo.multiply %161, %160 : tensor<64xf32>
    %163 = stablehlo.broadcast_in_dim %125, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %164 = stablehlo.multiply %107, %163 : tensor<64xf32>
    %165 = stablehlo.sqrt %164 : tensor<64xf32>
    %cst_51 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %166 = stablehlo.broadcast_in_dim %cst_51, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %167 = stablehlo.add %165, %166 : tensor<64xf32>
    %168 = stablehlo.divide %162, %167 : tensor<64xf32>
    %169 = stablehlo.subtract %arg6, %168 : tensor<64xf32>
    %170 = stablehlo.broadcast_in_dim %122, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %171 = stablehlo.multiply %78, %170 : tensor<64x10xf32>
    %cst_52 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %172 = stablehlo.broadcast_in_dim %cst_52, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %173 = stablehlo.multiply %172, %171 : tensor<64x10xf32>
    %174 = stablehlo.broadcast_in_dim %125, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %175 = stablehlo.multiply %113, %174 : tensor<64x10xf32>
    %176 = stablehlo.sqrt %175 : tensor<64x10xf32>
    %cst_53 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %177 = stablehlo.broadcast_in_dim %cst_53, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %178 = stablehlo.add %176, %177 : tensor<64x10xf32>
    %179 = stablehlo.divide %173, %178 : tensor<64x10xf32>
    %180 = stablehlo.subtract %arg7, %179 : tensor<64x10xf32>
    %181 = stablehlo.broadcast_in_dim %122, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %182 = stablehlo.multiply %83, %181 : tensor<10xf32>
    %cst_54 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %183 = stablehlo.broadcast_in_dim %cst_54, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %184 = stablehlo.multiply %183, %182 : tensor<10xf32>
    %185 = stablehlo.broadcast_in_dim %125, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %186 = stablehlo.multiply %119, %185 : tensor<10xf32>
    %187 = stablehlo.sqrt %186 : tensor<10xf32>
    %cst_55 = stablehlo.constant dense<9.99999993E-9> : tensor<f32>
    %188 = stablehlo.broadcast_in_dim %cst_55, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %189 = stablehlo.add %187, %188 : tensor<10xf32>
    %190 = stablehlo.divide %184, %189 : tensor<10xf32>
    %191 = stablehlo.subtract %arg8, %190 : tensor<10xf32>
    return %24, %52, %136, %147, %158, %169, %180, %191, %58, %63, %68, %73, %78, %83, %89, %95, %101, %107, %113, %119 : tensor<f32>, tensor<i32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x64xf32>, tensor<64xf32>, tensor<64x10xf32>, tensor<10xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x64xf32>, tensor<64xf32>, tensor<64x10xf32>, tensor<10xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<128x64xf32>, tensor<64xf32>, tensor<64x10xf32>, tensor<10xf32>
  }
  func.func private @relu(%arg0: tensor<32x128xf32>) -> tensor<32x128xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<32x128xf32>
    return %1 : tensor<32x128xf32>
  }
  func.func private @relu_0(%arg0: tensor<32x64xf32>) -> tensor<32x64xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<32x64xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<32x64xf32>
    return %1 : tensor<32x64xf32>
  }
  func.func private @_one_hot(%arg0: tensor<32xi32>) -> tensor<32x10xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0] : (tensor<32xi32>) -> tensor<32x1xi32>
    %1 = stablehlo.iota dim = 1 : tensor<1x10xi32>
    %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<32x1xi32>) -> tensor<32x10xi32>
    %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x10xi32>) -> tensor<32x10xi32>
    %4 = stablehlo.compare EQ, %2, %3, SIGNED : (tensor<32x10xi32>, tensor<32x10xi32>) -> tensor<32x10xi1>
    %5 = stablehlo.convert %4 : (tensor<32x10xi1>) -> tensor<32x10xf32>
    return %5 : tensor<32x10xf32>
  }
  func.func private @log_softmax(%arg0: tensor<32x10xf32>) -> (tensor<32x10xf32>, tensor<32x10xf32>, tensor<32x1xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<32x10xf32>, tensor<f32>) -> tensor<32xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<32xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<32xf32>) -> tensor<32x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<32x1xf32>) -> tensor<32x10xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<32x10xf32>
    %6 = stablehlo.exponential %5 : tensor<32x10xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<32x10xf32>, tensor<f32>) -> tensor<32xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<32xf32>) -> tensor<32x1xf32>
    %9 = stablehlo.log %8 : tensor<32x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<32x1xf32>) -> tensor<32x10xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<32x10xf32>
    return %11, %6, %8 : tensor<32x10xf32>, tensor<32x10xf32>, tensor<32x1xf32>
  }
  func.func private @log_softmax_1(%arg0: tensor<32x10xf32>, %arg1: tensor<32x1xf32>, %arg2: tensor<32x10xf32>) -> tensor<32x10xf32> {
    %0 = stablehlo.negate %arg2 : tensor<32x10xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<32x10xf32>, tensor<f32>) -> tensor<32xf32>
    %2 = stablehlo.reshape %1 : (tensor<32xf32>) -> tensor<32x1xf32>
    %3 = stablehlo.divide %2, %arg1 : tensor<32x1xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<32x1xf32>, tensor<f32>) -> tensor<32xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<32xf32>) -> tensor<32x10xf32>
    %6 = stablehlo.multiply %5, %arg0 : tensor<32x10xf32>
    %7 = stablehlo.add %arg2, %6 : tensor<32x10xf32>
    return %7 : tensor<32x10xf32>
  }
}
