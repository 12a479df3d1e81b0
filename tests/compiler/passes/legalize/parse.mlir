// RUN: cpu parse
// The text of the rendered spec becomes a module; generated names of values do not survive.

func.func @main(%operand: tensor<2xf32>) -> tensor<2xf32> {
  %sum = stablehlo.add %operand, %operand : tensor<2xf32>
  return %sum : tensor<2xf32>
}

// CHECK-LABEL: func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32>
// CHECK-NEXT: %0 = stablehlo.add %arg0, %arg0 : tensor<2xf32>
// CHECK-NEXT: return %0

// -----
// Text that is not MLIR is an invalid program, with the diagnostic of the parser.

func.func @main() { stablehlo.unknown }

// CHECK: error: InvalidProgram: Unable to parse module assembly:
// CHECK-NEXT: custom op 'stablehlo.unknown' is unknown
