// RUN: cpu signature..scans
// A window reduction whose window is as long as its axis, padded on one side, is a scan: O(n) additions instead of
// O(n * n). The result is a `linalg.generic` with a carried total.

func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) {window_dimensions = array<i64: 8>, padding = dense<[[7, 0]]> : tensor<1x2xi64>}
      : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// BEFORE: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%padded
// CHECK-LABEL: func.func @main
// CHECK: %[[SCAN:.*]]:2 = linalg.generic {{.*}} iterator_types = ["reduction"]} ins(%arg0 : tensor<8xf32>)
// CHECK-SAME: outs(%{{.*}}, %{{.*}} : tensor<f32>, tensor<8xf32>)
// CHECK: %[[TOTAL:.*]] = arith.addf %out, %in : f32
// CHECK-NEXT: linalg.yield %[[TOTAL]], %[[TOTAL]]
// CHECK: return %[[SCAN]]#1
