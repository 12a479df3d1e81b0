// RUN: cpu half-conversions target=x86-64-v3
// x86-64-v3 has F16C: the conversion is an instruction.

func.func @main(%x: f16) -> f32 {
  %0 = arith.extf %x : f16 to f32
  return %0 : f32
}

// CHECK: arith.extf %arg0 : f16 to f32
// CHECK-NEXT: return
