module {
  func.func @main(%arg0: tensor<6x10xf32>) -> tensor<6x10xf32> {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<6x10xf32>
    %cst_0 = stablehlo.constant dense<3.000000e+00> : tensor<6x10xf32>
    %cst_1 = stablehlo.constant dense<5.000000e-01> : tensor<6x10xf32>
    %cst_2 = stablehlo.constant dense<0.636619746> : tensor<6x10xf32>
    %cst_3 = stablehlo.constant dense<4.471500e-02> : tensor<6x10xf32>
    %0 = stablehlo.multiply %arg0, %cst_1 : tensor<6x10xf32>
    %1 = stablehlo.sqrt %cst_2 : tensor<6x10xf32>
    %2 = stablehlo.power %arg0, %cst_0 : tensor<6x10xf32>
    %3 = stablehlo.multiply %cst_3, %2 : tensor<6x10xf32>
    %4 = stablehlo.add %arg0, %3 : tensor<6x10xf32>
    %5 = stablehlo.multiply %1, %4 : tensor<6x10xf32>
    %6 = stablehlo.tanh %5 : tensor<6x10xf32>
    %7 = stablehlo.add %6, %cst : tensor<6x10xf32>
    %8 = stablehlo.multiply %7, %0 : tensor<6x10xf32>
    return %8 : tensor<6x10xf32>
  }
}
