// RUN: cpu signless
// Unsigned element types become signless, and the casts between the two kinds of types disappear: by now operations
// say whether they are signed.

func.func @main(%x: tensor<4xui8>) -> tensor<4xui8> {
  %signless = builtin.unrealized_conversion_cast %x : tensor<4xui8> to tensor<4xi8>
  %unsigned = builtin.unrealized_conversion_cast %signless : tensor<4xi8> to tensor<4xui8>
  return %unsigned : tensor<4xui8>
}

// CHECK: func.func @main(%arg0: tensor<4xi8>) -> tensor<4xi8>
// CHECK-NEXT: return %arg0 : tensor<4xi8>
