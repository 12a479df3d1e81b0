// RUN: nvidia signature..ptx
// The optimized IR becomes PTX: an entry with the required number of threads, vector loads and stores.

func.func @main(%a: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = stablehlo.negate %a : tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

// CHECK: .target sm_90
// CHECK: .visible .entry launch_0
// CHECK: .reqntid 256, 1, 1
// CHECK: ld.global.nc.v4.b32
// CHECK-COUNT-4: neg.f32
// CHECK: st.global.v4.b32
