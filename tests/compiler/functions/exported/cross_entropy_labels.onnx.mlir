module {
  func.func @main(%arg0: tensor<6x10xf32>, %arg1: tensor<6xi64>) -> tensor<f32> {
    %c = stablehlo.constant dense<0> : tensor<6xi64>
    %c_0 = stablehlo.constant dense<-100> : tensor<6xi64>
    %c_1 = stablehlo.constant dense<0> : tensor<i64>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
    %1 = stablehlo.reshape %0 : (tensor<6xf32>) -> tensor<6x1xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<6x1xf32>) -> tensor<6x10xf32>
    %3 = stablehlo.subtract %arg0, %2 : tensor<6x10xf32>
    %4 = stablehlo.exponential %3 : tensor<6x10xf32>
    %5 = stablehlo.reduce(%4 init: %cst_2) applies stablehlo.add across dimensions = [1] : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>
    %6 = stablehlo.reshape %5 : (tensor<6xf32>) -> tensor<6x1xf32>
    %7 = stablehlo.log %6 : tensor<6x1xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<6x1xf32>) -> tensor<6x10xf32>
    %9 = stablehlo.subtract %3, %8 : tensor<6x10xf32>
    %10 = stablehlo.compare NE, %arg1, %c_0, SIGNED : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi1>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0] : (tensor<6xi1>) -> tensor<6xi1>
    %12 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<6xi64>) -> tensor<6xi64>
    %13 = stablehlo.select %11, %12, %c : tensor<6xi1>, tensor<6xi64>
    %14 = stablehlo.reshape %13 : (tensor<6xi64>) -> tensor<6x1xi64>
    %15 = stablehlo.iota dim = 0 : tensor<6x1x1xi64>
    %16 = stablehlo.reshape %14 : (tensor<6x1xi64>) -> tensor<6x1x1xi64>
    %17 = stablehlo.concatenate %15, %16, dim = 2 : (tensor<6x1x1xi64>, tensor<6x1x1xi64>) -> tensor<6x1x2xi64>
    %18 = "stablehlo.gather"(%9, %17) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}> : (tensor<6x10xf32>, tensor<6x1x2xi64>) -> tensor<6x1xf32>
    %19 = stablehlo.negate %18 : tensor<6x1xf32>
    %20 = stablehlo.reshape %19 : (tensor<6x1xf32>) -> tensor<6xf32>
    %21 = stablehlo.convert %c_1 : (tensor<i64>) -> tensor<f32>
    %22 = stablehlo.broadcast_in_dim %20, dims = [0] : (tensor<6xf32>) -> tensor<6xf32>
    %23 = stablehlo.broadcast_in_dim %21, dims = [] : (tensor<f32>) -> tensor<6xf32>
    %24 = stablehlo.select %11, %22, %23 : tensor<6xi1>, tensor<6xf32>
    %25 = stablehlo.convert %10 : (tensor<6xi1>) -> tensor<6xi64>
    %26 = stablehlo.reduce(%25 init: %c_1) applies stablehlo.add across dimensions = [0] : (tensor<6xi64>, tensor<i64>) -> tensor<i64>
    %27 = stablehlo.reduce(%24 init: %cst_2) applies stablehlo.add across dimensions = [0] : (tensor<6xf32>, tensor<f32>) -> tensor<f32>
    %28 = stablehlo.convert %26 : (tensor<i64>) -> tensor<f32>
    %29 = stablehlo.divide %27, %28 : tensor<f32>
    return %29 : tensor<f32>
  }
}
