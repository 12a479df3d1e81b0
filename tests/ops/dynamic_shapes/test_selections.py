"""``select_and_scatter`` of open sizes, with strides: the source has as many elements as there are windows."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel

Pairs = tuple[tuple[int, int], ...]

_REGIONS = """({
^bb0(%p: tensor<f32>, %q: tensor<f32>):
  %c = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %c : tensor<i1>
}, {
^bb0(%p: tensor<f32>, %q: tensor<f32>):
  %c = stablehlo.add %p, %q : tensor<f32>
  stablehlo.return %c : tensor<f32>
})"""


def _kernel(strides: tuple[int, ...], window: tuple[int, ...], padding: Pairs) -> Kernel:
    rows = [list(pair) for pair in padding]
    text = f"""func.func @main(%x: tensor<?x?xf32>, %s: tensor<?x?xf32>) -> tensor<?x?xf32> {{
%i = stablehlo.constant dense<0.0> : tensor<f32>
%r = "stablehlo.select_and_scatter"(%x, %s, %i) {_REGIONS} {{window_dimensions = array<i64: {str(window)[1:-1]}>,
window_strides = array<i64: {str(strides)[1:-1]}>, padding = dense<{rows}> : tensor<2x2xi64>}}
: (tensor<?x?xf32>, tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
return %r : tensor<?x?xf32>
}}"""
    form = canonicalize(text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    return Kernel(compile_spec(form.spec_text, form.arg_spec, "x86-64-v2", options, lambda _: None))


def _expected(
    x: np.ndarray, source: np.ndarray, strides: tuple[int, ...], window: tuple[int, ...], padding: Pairs
) -> np.ndarray:
    sums = np.zeros_like(x)
    for place in np.ndindex(source.shape):
        corner = [p * s - low for p, s, (low, _) in zip(place, strides, padding, strict=True)]
        seen = [tuple(c + w for c, w in zip(corner, at, strict=True)) for at in np.ndindex(window)]
        inside = [at for at in seen if all(0 <= p < size for p, size in zip(at, x.shape, strict=True))]
        if inside:
            sums[max(inside, key=lambda at: x[at])] += source[place]
    return sums


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("strides", "window", "padding"),
    [
        ((2, 1), (2, 3), ((0, 0), (0, 0))),
        ((2, 2), (3, 3), ((1, 1), (1, 1))),
        ((2, 2), (2, 4), ((0, 1), (3, 0))),
        ((3, 2), (4, 1), ((1, 2), (0, 0))),
    ],
)
def test_there_is_a_source_for_each_window(
    strides: tuple[int, int], window: tuple[int, int], padding: Pairs
) -> None:
    kernel = _kernel(strides, window, padding)
    generator = np.random.default_rng(3)
    for sizes in ((9, 7), (4, 4), (5, 16), (16, 5), (17, 17)):
        shown = zip(sizes, strides, window, padding, strict=True)
        counts = [(size + sum(pair) - wide) // step + 1 for size, step, wide, pair in shown]
        x = generator.integers(-3, 4, sizes).astype(np.float32)
        source = generator.integers(-5, 6, counts).astype(np.float32)
        np.testing.assert_array_equal(kernel(x, source)[0], _expected(x, source, strides, window, padding))
        with pytest.raises(Exception, match="do not fit"):
            kernel(x, np.zeros((counts[0] + 1, counts[1]), np.float32))
