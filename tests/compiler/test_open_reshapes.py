"""A reshape of open sizes to stated ones is refused: nothing would check that both have as many elements."""

from __future__ import annotations

import pytest

from kcache_compiler import canonicalize
from kcache_compiler.errors import UnsupportedOp


@pytest.mark.parametrize("stated", ["5x3", "15", "7x1x2"])
def test_a_reshape_that_fixes_the_product_of_open_sizes_is_refused(stated: str) -> None:
    kind = f"tensor<{stated}xf32>"
    text = f"""func.func @main(%a: tensor<?x?xf32>) -> {kind} {{
  %r = stablehlo.reshape %a : (tensor<?x?xf32>) -> {kind}
  return %r : {kind}
}}"""
    with pytest.raises(UnsupportedOp, match="reshape"):
        canonicalize(text.encode(), "stablehlo")
