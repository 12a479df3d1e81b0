// RUN: nvidia flat-control
// GPU launches are a fixed list, so that control flow is flattened: both branches of a conditional are computed and
// selected, and a loop with a constant trip count is unrolled.

func.func @branch(%condition: tensor<i1>, %a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.if"(%condition) ({
    %1 = stablehlo.negate %a : tensor<4xf32>
    stablehlo.return %1 : tensor<4xf32>
  }, {
    %1 = stablehlo.abs %a : tensor<4xf32>
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @loop(%a: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %step = stablehlo.constant dense<1> : tensor<i32>
  %limit = stablehlo.constant dense<3> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<4xf32>
    cond {
      %less = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %next = stablehlo.add %i, %step : tensor<i32>
      %double = stablehlo.add %x, %x : tensor<4xf32>
      stablehlo.return %next, %double : tensor<i32>, tensor<4xf32>
    }
  return %0#1 : tensor<4xf32>
}

// CHECK-LABEL: func.func @branch
// CHECK-NEXT: %[[NEGATED:.*]] = stablehlo.negate %arg1
// CHECK-NEXT: %[[ABSOLUTE:.*]] = stablehlo.abs %arg1
// CHECK-NEXT: stablehlo.select %arg0, %[[NEGATED]], %[[ABSOLUTE]]
// CHECK-LABEL: func.func @loop
// CHECK-NOT: while
// CHECK: %[[ONE:.*]] = stablehlo.add %arg0, %arg0 : tensor<4xf32>
// CHECK: %[[TWO:.*]] = stablehlo.add %[[ONE]], %[[ONE]] : tensor<4xf32>
// CHECK: %[[THREE:.*]] = stablehlo.add %[[TWO]], %[[TWO]] : tensor<4xf32>
// CHECK: return %[[THREE]]

// -----
// A loop whose trip count depends on data stays, as `scf.while`: it is a launch of one block.

func.func @main(%n: tensor<i32>) -> tensor<i32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %step = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.while(%i = %zero) : tensor<i32>
    cond {
      %less = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %next = stablehlo.add %i, %step : tensor<i32>
      stablehlo.return %next : tensor<i32>
    }
  return %0 : tensor<i32>
}

// CHECK: scf.while
// CHECK: scf.condition
