"""Small programs that each end in another form of kernel."""

from __future__ import annotations

SOFTMAX = """
module { func.func @main(%a: tensor<128x2000xf32>) -> tensor<128x2000xf32> {
  %i = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%a init: %i) applies stablehlo.maximum across dimensions = [1]
    : (tensor<128x2000xf32>, tensor<f32>) -> tensor<128xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<128xf32>) -> tensor<128x2000xf32>
  %s = stablehlo.subtract %a, %mb : tensor<128x2000xf32>
  %e = stablehlo.exponential %s : tensor<128x2000xf32>
  %t = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<128x2000xf32>, tensor<f32>) -> tensor<128xf32>
  %tb = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<128xf32>) -> tensor<128x2000xf32>
  %r = stablehlo.divide %e, %tb : tensor<128x2000xf32>
  return %r : tensor<128x2000xf32>
} }
"""

POINTWISE = """
module { func.func @main(%a: tensor<1000x256xf32>, %b: tensor<256xf32>) -> tensor<1000x256xf32> {
  %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<256xf32>) -> tensor<1000x256xf32>
  %1 = stablehlo.add %a, %0 : tensor<1000x256xf32>
  %2 = stablehlo.exponential %1 : tensor<1000x256xf32>
  %3 = stablehlo.sqrt %2 : tensor<1000x256xf32>
  return %3 : tensor<1000x256xf32>
} }
"""

PRODUCT = """
module { func.func @main(%a: tensor<?x64xf32>, %b: tensor<64x96xf32>) -> tensor<?x96xf32> {
  %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<?x64xf32>, tensor<64x96xf32>) -> tensor<?x96xf32>
  return %r : tensor<?x96xf32>
} }
"""

LOOP = """
module { func.func @main(%a: tensor<f32>) -> tensor<f32> {
  %limit = stablehlo.constant dense<1.0e3> : tensor<f32>
  %r = stablehlo.while(%x = %a) : tensor<f32> cond {
    %more = stablehlo.compare LT, %x, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.add %x, %x : tensor<f32>
    stablehlo.return %next : tensor<f32>
  }
  return %r : tensor<f32>
} }
"""


def matmul(m: int, k: int, n: int, element: str, result: str = "f32") -> str:
    """A product with a bias and a maximum after it."""
    c = f"tensor<{m}x{n}x{result}>"
    return f"""
module {{ func.func @main(%a: tensor<{m}x{k}x{element}>, %b: tensor<{k}x{n}x{element}>,
    %bias: tensor<{n}x{result}>) -> {c} {{
  %zero = stablehlo.constant dense<0.0> : {c}
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<{m}x{k}x{element}>, tensor<{k}x{n}x{element}>) -> {c}
  %1 = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<{n}x{result}>) -> {c}
  %2 = stablehlo.add %0, %1 : {c}
  %3 = stablehlo.maximum %2, %zero : {c}
  return %3 : {c}
}} }}
"""
