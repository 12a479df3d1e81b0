"""Diagonals of axes without elements: an empty result, or sums of nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import kernel_of


@pytest.mark.sampled(4)
@pytest.mark.parametrize("element", ["i1", "ui8", "i64", "f32", "f64"])
@pytest.mark.parametrize(("config", "shape"), [("iaa->ia", (3, 0)), ("iaa->i", (3,)), ("iaa->", ())])
def test_a_diagonal_of_nothing_is_empty(element: str, config: str, shape: tuple[int, ...]) -> None:
    dims = "".join(f"{size}x" for size in shape)
    kernel = kernel_of(f"""func.func @main(%x: tensor<3x0x0x{element}>) -> tensor<{dims}{element}> {{
      %r = "stablehlo.unary_einsum"(%x) <{{einsum_config = "{config}"}}>
        : (tensor<3x0x0x{element}>) -> tensor<{dims}{element}>
      return %r : tensor<{dims}{element}> }}""")
    names = {"i1": "bool", "ui8": "u1", "i64": "i8", "f32": "f4", "f64": "f8"}
    (got,) = kernel(np.zeros((3, 0, 0), names[element]))
    assert got.shape == shape
    assert not got.any()
