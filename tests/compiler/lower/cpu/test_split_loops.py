"""Concatenations along the innermost axis: each operand is copied by a loop of its own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import compile_text, kernel_of, runs_here

TARGET = "x86-64-v3"


def _concatenation(rows: int, widths: tuple[int, ...]) -> str:
    """The columns of the operands side by side, each times two so that the operands are fused."""
    kinds = [f"tensor<{rows}x{width}xf32>" for width in widths]
    arguments = ", ".join(f"%a{number}: {kind}" for number, kind in enumerate(kinds))
    lines = [
        f"%d{number} = stablehlo.add %a{number}, %a{number} : {kind}" for number, kind in enumerate(kinds)
    ]
    names = ", ".join(f"%d{number}" for number in range(len(widths)))
    result = f"tensor<{rows}x{sum(widths)}xf32>"
    return (
        f"module {{ func.func @main({arguments}) -> {result} {{\n"
        + "\n".join(lines)
        + f"\n%r = stablehlo.concatenate {names}, dim = 1 : ({', '.join(kinds)}) -> {result}\n"
        f"return %r : {result} }} }}"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("widths", [(16, 16), (96, 96, 96, 96), (17, 40), (5, 64), (1, 1, 70), (16,) * 9])
def test_columns_of_all_operands(widths: tuple[int, ...]) -> None:
    target = TARGET if runs_here(TARGET) else "x86-64-v2"
    rows, random = 7, np.random.default_rng(sum(widths))
    kernel = kernel_of(_concatenation(rows, widths), target)
    arrays = [random.standard_normal((rows, width), np.float32) for width in widths]
    (result,) = kernel(*arrays)
    np.testing.assert_array_equal(result, np.concatenate([array + array for array in arrays], 1))


def test_no_lane_is_loaded_apart() -> None:
    compiled = compile_text(_concatenation(64, (96, 96)), TARGET)
    assembly = compiled.artifacts["asm"].decode()
    assert "vaddps" in assembly
    assert "vinsertps" not in assembly


def test_a_counter_that_wraps_around() -> None:
    """Shifts compare their count with the bits of the type; from element 65536 on, counts repeat."""
    kind = "tensor<2x65736xi16>"
    text = f"""
    func.func @main(%x: {kind}) -> {kind} {{
      %0 = stablehlo.iota dim = 1 : {kind}
      %1 = stablehlo.shift_left %x, %0 : {kind}
      return %1 : {kind}
    }}"""
    x = np.full((2, 65736), 3, np.int16)
    count = np.arange(65736) % 65536
    expected = np.where(count < 16, x.astype(np.int64) << np.minimum(count, 16), 0).astype(np.int16)
    target = TARGET if runs_here(TARGET) else "x86-64-v2"
    np.testing.assert_array_equal(kernel_of(text, target)(x)[0], expected)
