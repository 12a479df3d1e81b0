// RUN: cpu narrow-selects
// A selection between half precision values is one between their bits, so that the emulation does not convert them.

func.func @main(%condition: i1, %x: f16, %y: f16, %z: f32) -> (f16, f32) {
  %0 = arith.select %condition, %x, %y : f16
  %1 = arith.select %condition, %z, %z : f32
  return %0, %1 : f16, f32
}

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[X:.*]] = arith.bitcast %arg1 : f16 to i16
// CHECK-NEXT: %[[Y:.*]] = arith.bitcast %arg2 : f16 to i16
// CHECK-NEXT: %[[BITS:.*]] = arith.select %arg0, %[[X]], %[[Y]] : i16
// CHECK-NEXT: arith.bitcast %[[BITS]] : i16 to f16
// CHECK-NEXT: arith.select %arg0, %arg3, %arg3 : f32
