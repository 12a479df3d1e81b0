// RUN: cpu signature
// The signature is read from `main`; the IR stays as it is. Every dynamic dimension of an argument is a symbol,
// and a dynamic dimension of a result is -1 until the entry function computes it.

func.func @main(%a: tensor<?x4xf32>, %b: tensor<4xui8>) -> (tensor<?x4xf32>, tensor<4xui8>) {
  return %a, %b : tensor<?x4xf32>, tensor<4xui8>
}

// CHECK: func.func @main(%arg0: tensor<?x4xf32>, %arg1: tensor<4xui8>) -> (tensor<?x4xf32>, tensor<4xui8>)
// CHECK: // inputs: (TensorType(dtype='f32', dims=('s0', 4)), TensorType(dtype='ui8', dims=(4,)))
// CHECK-NEXT: // outputs: (TensorType(dtype='f32', dims=(-1, 4)), TensorType(dtype='ui8', dims=(4,)))
// CHECK-NEXT: // symbols: (Symbol(name='s0', arg=0, axis=0),)

// -----
// Element types that buffers cannot hold are unsupported.

func.func @main(%a: tensor<4xf80>) -> tensor<4xf80> {
  return %a : tensor<4xf80>
}

// CHECK: error: UnsupportedOp: unsupported op tensor type: element type f80 is not supported
