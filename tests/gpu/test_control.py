"""Loops of a known number of turns and branches, without control flow: run against the same on this CPU."""

from __future__ import annotations

import numpy as np

from tests.compiler.codegen_harness import compile_text, kernel_of
from tests.gpu.harness.run import run_gpu

TARGET = "sm_90"
#: Counts down in a type that wraps, with a slice that follows the counter, and a branch in the body.
LOOP = """
func.func @main(%x: tensor<6x4xf32>, %p: tensor<i32>) -> (tensor<4xf32>, tensor<i8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %six = stablehlo.constant dense<6> : tensor<i32>
  %large = stablehlo.constant dense<100> : tensor<i8>
  %start = stablehlo.constant dense<0.5> : tensor<4xf32>
  %r:3 = stablehlo.while(%i = %zero, %a = %start, %n = %large) : tensor<i32>, tensor<4xf32>, tensor<i8>
    cond {
      %more = stablehlo.compare LT, %i, %six : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %row = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 4]
        : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
      %flat = stablehlo.reshape %row : (tensor<1x4xf32>) -> tensor<4xf32>
      %even = stablehlo.compare EQ, %i, %p : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %b = "stablehlo.if"(%even) ({
        %m = stablehlo.multiply %a, %flat : tensor<4xf32>
        stablehlo.return %m : tensor<4xf32>
      }, {
        %s = "stablehlo.case"(%p) ({
          %0 = stablehlo.subtract %a, %flat : tensor<4xf32>
          stablehlo.return %0 : tensor<4xf32>
        }, {
          %1 = stablehlo.add %a, %flat : tensor<4xf32>
          stablehlo.return %1 : tensor<4xf32>
        }, {
          stablehlo.return %flat : tensor<4xf32>
        }) : (tensor<i32>) -> tensor<4xf32>
        stablehlo.return %s : tensor<4xf32>
      }) : (tensor<i1>) -> tensor<4xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %k = stablehlo.add %n, %n : tensor<i8>
      stablehlo.return %j, %b, %k : tensor<i32>, tensor<4xf32>, tensor<i8>
    }
  return %r#1, %r#2 : tensor<4xf32>, tensor<i8>
}
"""


def counting(turns: int, body: str = "%b = stablehlo.add %a, %x : tensor<8xf32>") -> str:
    return f"""
      func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
        %zero = stablehlo.constant dense<0> : tensor<i64>
        %one = stablehlo.constant dense<1> : tensor<i64>
        %n = stablehlo.constant dense<{turns}> : tensor<i64>
        %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i64>, tensor<8xf32>
          cond {{
            %more = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
            stablehlo.return %more : tensor<i1>
          }} do {{
            {body}
            %j = stablehlo.add %i, %one : tensor<i64>
            stablehlo.return %j, %b : tensor<i64>, tensor<8xf32>
          }}
        return %r#1 : tensor<8xf32>
      }}"""


def test_counted_loops_and_branches_give_what_a_cpu_gives() -> None:
    kernel, cpu = compile_text(LOOP, TARGET), kernel_of(LOOP)
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(6, 4)
    for choice in (-1, 0, 1, 2, 3, 9):
        inputs = [x, np.int32(choice).reshape(())]
        for got, wanted in zip(run_gpu(kernel, inputs), cpu(*inputs), strict=True):
            np.testing.assert_array_equal(got, wanted, str(choice))


def test_a_loop_of_no_turns_and_one_in_another() -> None:
    x = np.arange(8, dtype=np.float32)
    (same,) = run_gpu(compile_text(counting(0), TARGET), [x])
    np.testing.assert_array_equal(same, x)
    inner = """
      %q:2 = stablehlo.while(%k = %i, %b0 = %a) : tensor<i64>, tensor<8xf32>
        cond {
          %m = stablehlo.compare LT, %k, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
          stablehlo.return %m : tensor<i1>
        } do {
          %b1 = stablehlo.add %b0, %x : tensor<8xf32>
          %l = stablehlo.add %k, %one : tensor<i64>
          stablehlo.return %l, %b1 : tensor<i64>, tensor<8xf32>
        }
      %b = stablehlo.add %q#1, %q#1 : tensor<8xf32>"""
    kernel = compile_text(counting(3, inner), TARGET)
    wanted = x
    for turn in range(3):
        wanted = 2 * (wanted + (3 - turn) * x)
    np.testing.assert_array_equal(run_gpu(kernel, [x])[0], wanted)


def test_a_loop_of_too_many_copies_stays_a_loop() -> None:
    x = np.arange(8, dtype=np.float32)
    few, many = (compile_text(counting(turns), TARGET).interface.gpu_launches for turns in (500, 2000))
    assert "while" not in [launch.ops[0] for launch in few]
    assert [launch.ops[0] for launch in many].count("while") == 1
    kernel = compile_text(counting(2000), TARGET)
    np.testing.assert_array_equal(run_gpu(kernel, [x])[0], 2001 * x)


def test_a_loop_that_never_ends_compiles() -> None:
    """As it does for a CPU."""
    text = counting(3).replace("LT, %i, %n", "GE, %i, %i")
    assert compile_text(text, TARGET).interface.gpu_launches[-1].ops[0] == "while"


def test_a_cholesky_factor_leaves_the_other_triangle() -> None:
    text = f"""func.func @main(%a: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<i32>) {{
      %r:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a)
        {{mhlo.backend_config = {{uplo = {ord("L")} : ui8}}}}
        : (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<i32>)
      return %r#0, %r#1 : tensor<3x3xf32>, tensor<i32>
    }}"""
    matrix = np.array([[4, 7, 8], [2, 5, 9], [2, 3, 6]], np.float32)
    factor, failed = run_gpu(compile_text(text, TARGET), [matrix])
    np.testing.assert_array_equal(factor, np.array([[2, 7, 8], [1, 2, 9], [1, 1, 2]], np.float32))
    assert failed == 0
