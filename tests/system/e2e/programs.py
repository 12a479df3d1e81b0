"""Tiny programs, as many different ones as a test wants."""

from __future__ import annotations


def scale_and_shift(number: int, *, names: tuple[str, str] = ("x", "y"), label: str = "main_module") -> str:
    """A program that depends on ``number``; ``names`` and ``label`` change its text, not what it computes."""
    first, second = names
    return f"""
module @{label} {{
  func.func @main(%{first}: tensor<4x3xf32>, %{second}: tensor<4x3xf32>) -> tensor<4x3xf32> {{
    %c{label} = stablehlo.constant dense<{number + 1}.0> : tensor<4x3xf32>
    %0 = stablehlo.multiply %{first}, %c{label} : tensor<4x3xf32>
    %1 = stablehlo.add %0, %{second} : tensor<4x3xf32>
    return %1 : tensor<4x3xf32>
  }}
}}
"""
