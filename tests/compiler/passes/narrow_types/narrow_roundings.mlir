// RUN: cpu narrow-roundings numerics=strict
// Under `strict` numerics every rounding to a narrow type stays: the emulation marks conversions with `contract`, which
// lets a pair of them be removed, and this pass takes the flag away.

func.func @main(%x: f32) -> f32 {
  %0 = arith.truncf %x fastmath<contract> : f32 to f16
  %1 = arith.extf %0 fastmath<contract> : f16 to f32
  return %1 : f32
}

// CHECK: arith.truncf %arg0 fastmath<none> : f32 to f16
// CHECK-NEXT: arith.extf %{{.*}} fastmath<none> : f16 to f32
