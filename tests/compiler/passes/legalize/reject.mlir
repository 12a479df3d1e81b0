// RUN: cpu reject
// An operation of StableHLO or CHLO that no pass has lowered is unsupported; the error names the operation and its
// location.

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @unknown(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK: error: UnsupportedOp: unsupported op stablehlo.custom_call at "-":6:8: no definition of @unknown

// -----
// A module that is all linalg passes unchanged.

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// CHECK: return %arg0 : tensor<4xf32>
