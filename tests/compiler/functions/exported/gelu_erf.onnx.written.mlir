module {
  func.func @main(%arg0: tensor<6x10xf32>) -> tensor<6x10xf32> {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %cst_1 = stablehlo.constant dense<1.41421354> : tensor<f32>
    %cst_2 = stablehlo.constant dense<-4.000000e+00> : tensor<6x10xf32>
    %cst_3 = stablehlo.constant dense<4.000000e+00> : tensor<6x10xf32>
    %cst_4 = stablehlo.constant dense<-2.72614237E-10> : tensor<6x10xf32>
    %cst_5 = stablehlo.constant dense<2.77068146E-8> : tensor<6x10xf32>
    %cst_6 = stablehlo.constant dense<-2.10102394E-6> : tensor<6x10xf32>
    %cst_7 = stablehlo.constant dense<-5.69250624E-5> : tensor<6x10xf32>
    %cst_8 = stablehlo.constant dense<-7.34990637E-4> : tensor<6x10xf32>
    %cst_9 = stablehlo.constant dense<-2.954600e-03> : tensor<6x10xf32>
    %cst_10 = stablehlo.constant dense<-0.0160960332> : tensor<6x10xf32>
    %cst_11 = stablehlo.constant dense<-1.45660715E-5> : tensor<6x10xf32>
    %cst_12 = stablehlo.constant dense<-2.13374049E-4> : tensor<6x10xf32>
    %cst_13 = stablehlo.constant dense<-0.00168282702> : tensor<6x10xf32>
    %cst_14 = stablehlo.constant dense<-0.00737332925> : tensor<6x10xf32>
    %cst_15 = stablehlo.constant dense<-0.0142647391> : tensor<6x10xf32>
    %cst_16 = stablehlo.constant dense<-1.000000e+00> : tensor<6x10xf32>
    %cst_17 = stablehlo.constant dense<1.000000e+00> : tensor<6x10xf32>
    %0 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %1 = stablehlo.divide %arg0, %0 : tensor<6x10xf32>
    %2 = stablehlo.clamp %cst_2, %1, %cst_3 : tensor<6x10xf32>
    %3 = stablehlo.multiply %2, %2 : tensor<6x10xf32>
    %4 = stablehlo.multiply %cst_4, %3 : tensor<6x10xf32>
    %5 = stablehlo.add %4, %cst_5 : tensor<6x10xf32>
    %6 = stablehlo.multiply %5, %3 : tensor<6x10xf32>
    %7 = stablehlo.add %6, %cst_6 : tensor<6x10xf32>
    %8 = stablehlo.multiply %7, %3 : tensor<6x10xf32>
    %9 = stablehlo.add %8, %cst_7 : tensor<6x10xf32>
    %10 = stablehlo.multiply %9, %3 : tensor<6x10xf32>
    %11 = stablehlo.add %10, %cst_8 : tensor<6x10xf32>
    %12 = stablehlo.multiply %11, %3 : tensor<6x10xf32>
    %13 = stablehlo.add %12, %cst_9 : tensor<6x10xf32>
    %14 = stablehlo.multiply %13, %3 : tensor<6x10xf32>
    %15 = stablehlo.add %14, %cst_10 : tensor<6x10xf32>
    %16 = stablehlo.multiply %cst_11, %3 : tensor<6x10xf32>
    %17 = stablehlo.add %16, %cst_12 : tensor<6x10xf32>
    %18 = stablehlo.multiply %17, %3 : tensor<6x10xf32>
    %19 = stablehlo.add %18, %cst_13 : tensor<6x10xf32>
    %20 = stablehlo.multiply %19, %3 : tensor<6x10xf32>
    %21 = stablehlo.add %20, %cst_14 : tensor<6x10xf32>
    %22 = stablehlo.multiply %21, %3 : tensor<6x10xf32>
    %23 = stablehlo.add %22, %cst_15 : tensor<6x10xf32>
    %24 = stablehlo.multiply %2, %15 : tensor<6x10xf32>
    %25 = stablehlo.divide %24, %23 : tensor<6x10xf32>
    %26 = stablehlo.clamp %cst_16, %25, %cst_17 : tensor<6x10xf32>
    %27 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %28 = stablehlo.add %26, %27 : tensor<6x10xf32>
    %29 = stablehlo.multiply %arg0, %28 : tensor<6x10xf32>
    %30 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<6x10xf32>
    %31 = stablehlo.multiply %29, %30 : tensor<6x10xf32>
    return %31 : tensor<6x10xf32>
  }
}
