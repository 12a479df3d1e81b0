// RUN: cpu share
// Identical private functions are deduplicated: the first stays, and all calls go to it.

module {
  func.func private @first(%x: f32) -> f32 {
    %0 = arith.negf %x : f32
    return %0 : f32
  }
  func.func private @second(%x: f32) -> f32 {
    %0 = arith.negf %x : f32
    return %0 : f32
  }
  func.func private @different(%x: f32) -> f32 {
    %0 = math.absf %x : f32
    return %0 : f32
  }
  func.func @main(%x: f32) -> f32 {
    %0 = call @first(%x) : (f32) -> f32
    %1 = call @second(%0) : (f32) -> f32
    %2 = call @different(%1) : (f32) -> f32
    return %2 : f32
  }
}

// CHECK: func.func private @first
// CHECK-NOT: @second
// CHECK: func.func private @different
// CHECK: %[[ONCE:.*]] = call @first(%arg0) : (f32) -> f32
// CHECK-NEXT: call @first(%[[ONCE]]) : (f32) -> f32
// CHECK-NEXT: call @different
