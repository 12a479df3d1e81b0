// RUN: cpu subkernels
// Operations with a long expansion that are repeated often are compiled once, as a subkernel: each occurrence becomes
// an unrealized cast with a note that names the subkernel. `shuffles` makes a launch of the note.

func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %0 = stablehlo.cholesky %x, lower = true : tensor<2x2xf32>
  %1 = stablehlo.cholesky %0, lower = true : tensor<2x2xf32>
  %2 = stablehlo.cholesky %1, lower = true : tensor<2x2xf32>
  %3 = stablehlo.cholesky %2, lower = true : tensor<2x2xf32>
  %4 = stablehlo.cholesky %3, lower = true : tensor<2x2xf32>
  %5 = stablehlo.cholesky %4, lower = true : tensor<2x2xf32>
  %6 = stablehlo.cholesky %5, lower = true : tensor<2x2xf32>
  %7 = stablehlo.cholesky %6, lower = true : tensor<2x2xf32>
  %8 = stablehlo.cholesky %7, lower = true : tensor<2x2xf32>
  %9 = stablehlo.cholesky %8, lower = true : tensor<2x2xf32>
  %10 = stablehlo.cholesky %9, lower = true : tensor<2x2xf32>
  %11 = stablehlo.cholesky %10, lower = true : tensor<2x2xf32>
  %12 = stablehlo.cholesky %11, lower = true : tensor<2x2xf32>
  %13 = stablehlo.cholesky %12, lower = true : tensor<2x2xf32>
  %14 = stablehlo.cholesky %13, lower = true : tensor<2x2xf32>
  %15 = stablehlo.cholesky %14, lower = true : tensor<2x2xf32>
  %16 = stablehlo.cholesky %15, lower = true : tensor<2x2xf32>
  %17 = stablehlo.cholesky %16, lower = true : tensor<2x2xf32>
  %18 = stablehlo.cholesky %17, lower = true : tensor<2x2xf32>
  %19 = stablehlo.cholesky %18, lower = true : tensor<2x2xf32>
  %20 = stablehlo.cholesky %19, lower = true : tensor<2x2xf32>
  %21 = stablehlo.cholesky %20, lower = true : tensor<2x2xf32>
  %22 = stablehlo.cholesky %21, lower = true : tensor<2x2xf32>
  %23 = stablehlo.cholesky %22, lower = true : tensor<2x2xf32>
  %24 = stablehlo.cholesky %23, lower = true : tensor<2x2xf32>
  %25 = stablehlo.cholesky %24, lower = true : tensor<2x2xf32>
  %26 = stablehlo.cholesky %25, lower = true : tensor<2x2xf32>
  %27 = stablehlo.cholesky %26, lower = true : tensor<2x2xf32>
  %28 = stablehlo.cholesky %27, lower = true : tensor<2x2xf32>
  %29 = stablehlo.cholesky %28, lower = true : tensor<2x2xf32>
  %30 = stablehlo.cholesky %29, lower = true : tensor<2x2xf32>
  %31 = stablehlo.cholesky %30, lower = true : tensor<2x2xf32>
  return %31 : tensor<2x2xf32>
}

// CHECK-NOT: stablehlo.cholesky
// CHECK-COUNT-32: builtin.unrealized_conversion_cast {{.*}} {kcache_shuffle = "{\22kind\22: \22part\22, \22name\22: \22kcache_part_{{[0-9a-f]+}}\22}"}
// CHECK-NOT: unrealized_conversion_cast

// -----
// A few occurrences stay: their code is shorter than the calls of a subkernel would be.

func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %0 = stablehlo.cholesky %x, lower = true : tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}

// CHECK: stablehlo.cholesky
// CHECK-NOT: unrealized_conversion_cast
