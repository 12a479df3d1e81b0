"""Loops that read the same matrix in each iteration: in which order, and what that leaves unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import Kernel, kernel_of, threaded_host

ROWS, COLUMNS, STEPS = 1000, 200, 5


def _program(rows: int, batch: int = 1) -> str:
    """``h = tanh(w v)``, then ``v`` is the first elements of ``h``; the states of all steps."""
    state, inputs = f"tensor<{batch}x{rows}xf32>", f"tensor<{batch}x{COLUMNS}xf32>"
    stack, weight = f"tensor<{STEPS}x{batch}x{rows}xf32>", f"tensor<{rows}x{COLUMNS}xf32>"
    return f"""
      func.func @main(%w: {weight}, %v: {inputs}) -> ({inputs}, {stack}) {{
        %zero = stablehlo.constant dense<0> : tensor<i64>
        %one = stablehlo.constant dense<1> : tensor<i64>
        %steps = stablehlo.constant dense<{STEPS}> : tensor<i64>
        %empty = stablehlo.constant dense<0.0> : {stack}
        %r:3 = stablehlo.while(%i = %zero, %x = %v, %all = %empty) : tensor<i64>, {inputs}, {stack}
          cond {{
            %p = stablehlo.compare LT, %i, %steps : (tensor<i64>, tensor<i64>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : ({inputs}, {weight}) -> {state}
            %h = stablehlo.tanh %d : {state}
            %row = stablehlo.reshape %h : ({state}) -> tensor<1x{batch}x{rows}xf32>
            %more = stablehlo.dynamic_update_slice %all, %row, %i, %zero, %zero
              : ({stack}, tensor<1x{batch}x{rows}xf32>, tensor<i64>, tensor<i64>, tensor<i64>) -> {stack}
            %y = stablehlo.slice %h [0:{batch}, 0:{COLUMNS}] : ({state}) -> {inputs}
            %j = stablehlo.add %i, %one : tensor<i64>
            stablehlo.return %j, %y, %more : tensor<i64>, {inputs}, {stack}
          }}
        return %r#1, %r#2 : {inputs}, {stack}
      }}"""


def _inputs(rows: int, batch: int = 1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    weight = (random.standard_normal((rows, COLUMNS)) / COLUMNS**0.5).astype(np.float32)
    return weight, random.standard_normal((batch, COLUMNS)).astype(np.float32)


def _expected(weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    states: list[np.ndarray] = []
    for _ in range(STEPS):
        states.append(np.tanh(x.astype(np.float64) @ weight.astype(np.float64).T))
        x = states[-1][:, :COLUMNS]
    return np.stack(states)


def _alternates(kernel: Kernel) -> bool:
    return "kcache_least_slice" in str(kernel.compiled.artifacts["llvm"])


@pytest.mark.parametrize("batch", [1, 3])
def test_iterations_alternate_over_a_large_matrix(batch: int) -> None:
    kernel = kernel_of(_program(ROWS, batch))
    assert _alternates(kernel)
    weight, x = _inputs(ROWS, batch)
    last, states = kernel(weight, x)
    np.testing.assert_allclose(states, _expected(weight, x), rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(last, states[-1][:, :COLUMNS])
    for workers in (2, 3):
        host = threaded_host(workers)
        for value, other in zip(kernel(weight, x, host=host), (last, states), strict=True):
            np.testing.assert_array_equal(value, other)
        # At most two slices a worker: each keeps its rows from one iteration to the next.
        assert (ROWS, -(-ROWS // (2 * workers))) in host.calls


def test_a_small_matrix_is_read_in_one_order() -> None:
    kernel = kernel_of(_program(400))
    assert not _alternates(kernel)
    weight, x = _inputs(400)
    np.testing.assert_allclose(kernel(weight, x)[1], _expected(weight, x), rtol=2e-5, atol=2e-6)


def test_a_failed_task_ends_the_loop() -> None:
    kernel = kernel_of(_program(ROWS))
    with pytest.raises(RuntimeError, match="7"):
        kernel(*_inputs(ROWS), host=threaded_host(2, code=7))
