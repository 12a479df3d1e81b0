module {
  func.func @main(%arg0: tensor<6x10xf32>) -> tensor<6x10xf32> {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<6x10xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<6x10xf32>
    %cst_1 = stablehlo.constant dense<5.000000e-01> : tensor<6x10xf32>
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
    %0 = stablehlo.multiply %arg0, %cst_1 : tensor<6x10xf32>
    %1 = stablehlo.rsqrt %cst_0 : tensor<6x10xf32>
    %2 = stablehlo.multiply %arg0, %1 : tensor<6x10xf32>
    %3 = stablehlo.clamp %cst_2, %2, %cst_3 : tensor<6x10xf32>
    %4 = stablehlo.multiply %3, %3 : tensor<6x10xf32>
    %5 = stablehlo.multiply %cst_4, %4 : tensor<6x10xf32>
    %6 = stablehlo.add %5, %cst_5 : tensor<6x10xf32>
    %7 = stablehlo.multiply %6, %4 : tensor<6x10xf32>
    %8 = stablehlo.add %7, %cst_6 : tensor<6x10xf32>
    %9 = stablehlo.multiply %8, %4 : tensor<6x10xf32>
    %10 = stablehlo.add %9, %cst_7 : tensor<6x10xf32>
    %11 = stablehlo.multiply %10, %4 : tensor<6x10xf32>
    %12 = stablehlo.add %11, %cst_8 : tensor<6x10xf32>
    %13 = stablehlo.multiply %12, %4 : tensor<6x10xf32>
    %14 = stablehlo.add %13, %cst_9 : tensor<6x10xf32>
    %15 = stablehlo.multiply %14, %4 : tensor<6x10xf32>
    %16 = stablehlo.add %15, %cst_10 : tensor<6x10xf32>
    %17 = stablehlo.multiply %cst_11, %4 : tensor<6x10xf32>
    %18 = stablehlo.add %17, %cst_12 : tensor<6x10xf32>
    %19 = stablehlo.multiply %18, %4 : tensor<6x10xf32>
    %20 = stablehlo.add %19, %cst_13 : tensor<6x10xf32>
    %21 = stablehlo.multiply %20, %4 : tensor<6x10xf32>
    %22 = stablehlo.add %21, %cst_14 : tensor<6x10xf32>
    %23 = stablehlo.multiply %22, %4 : tensor<6x10xf32>
    %24 = stablehlo.add %23, %cst_15 : tensor<6x10xf32>
    %25 = stablehlo.multiply %3, %16 : tensor<6x10xf32>
    %26 = stablehlo.divide %25, %24 : tensor<6x10xf32>
    %27 = stablehlo.clamp %cst_16, %26, %cst : tensor<6x10xf32>
    %28 = stablehlo.add %27, %cst : tensor<6x10xf32>
    %29 = stablehlo.multiply %28, %0 : tensor<6x10xf32>
    return %29 : tensor<6x10xf32>
  }
}
