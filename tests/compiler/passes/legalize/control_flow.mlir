// RUN: cpu control-flow
// Control flow on tensors becomes structured control flow: `while` is `scf.while`, `if` is `scf.if`, and `case` is
// `scf.index_switch`, whose default is the last branch, as StableHLO takes it for every index out of range.

func.func @loop(%n: tensor<i32>) -> tensor<i32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %step = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.while(%i = %zero) : tensor<i32>
    cond {
      %less = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %next = stablehlo.add %i, %step : tensor<i32>
      stablehlo.return %next : tensor<i32>
    }
  return %last : tensor<i32>
}

func.func @branch(%condition: tensor<i1>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.if"(%condition) ({
    stablehlo.return %a : tensor<4xf32>
  }, {
    stablehlo.return %b : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

func.func @switch(%index: tensor<i32>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.case"(%index) ({
    stablehlo.return %a : tensor<4xf32>
  }, {
    stablehlo.return %b : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @loop
// CHECK: scf.while (%[[I:.*]] = %c) : (tensor<i32>) -> tensor<i32>
// CHECK-NEXT: %[[LESS:.*]] = stablehlo.compare LT, %[[I]], %arg0
// CHECK-NEXT: %[[CONDITION:.*]] = tensor.extract %[[LESS]][] : tensor<i1>
// CHECK-NEXT: scf.condition(%[[CONDITION]]) %[[I]] : tensor<i32>
// CHECK: scf.yield %{{.*}} : tensor<i32>
// CHECK-LABEL: func.func @branch
// CHECK: scf.if %{{.*}} -> (tensor<4xf32>)
// CHECK-NEXT: scf.yield %arg1
// CHECK-NEXT: else
// CHECK-NEXT: scf.yield %arg2
// CHECK-LABEL: func.func @switch
// CHECK: %[[INDEX:.*]] = arith.index_cast %{{.*}} : i32 to index
// CHECK-NEXT: scf.index_switch %[[INDEX]] -> tensor<4xf32>
// CHECK-NEXT: case 0
// CHECK-NEXT: scf.yield %arg1
// CHECK: default
// CHECK-NEXT: scf.yield %arg2
