"""Reductions of windows that slide over rows: pooling of images with channels before rows and columns."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel, threaded_host


def pooling(shape: tuple[int, ...], out: tuple[int, ...], name: str, window: int, stride: int) -> str:
    kind, result = (f"tensor<{'x'.join(map(str, sizes))}xf32>" for sizes in (shape, out))
    start = "0xFF800000" if name == "maximum" else "0.0"
    return f"""
    func.func @main(%x: {kind}) -> {result} {{
      %start = stablehlo.constant dense<{start}> : tensor<f32>
      %0 = "stablehlo.reduce_window"(%x, %start) ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.{name} %a, %b : tensor<f32>
          stablehlo.return %c : tensor<f32>
      }}) {{window_dimensions = array<i64: 1, {window}, {window}>,
        window_strides = array<i64: 1, {stride}, {stride}>,
        padding = dense<[[0, 0], [1, 1], [1, 0]]> : tensor<3x2xi64>}} : ({kind}, tensor<f32>) -> {result}
      return %0 : {result}
    }}"""


def expected(x: np.ndarray, name: str, window: int, stride: int) -> np.ndarray:
    fill, fold = (-np.inf, np.maximum) if name == "maximum" else (0.0, np.add)
    padded = np.pad(x, [(0, 0), (1, 1), (1, 0)], constant_values=fill)
    high, wide = ((size - window) // stride + 1 for size in padded.shape[1:])
    total = np.full((len(x), high, wide), fill)
    for i, j in itertools.product(range(window), repeat=2):
        part = padded[:, i : i + (high - 1) * stride + 1 : stride, j : j + (wide - 1) * stride + 1 : stride]
        total = fold(total, part)
    return total


@pytest.mark.sampled(54)
@pytest.mark.parametrize("target", ["x86-64-v2", "host"])
@pytest.mark.parametrize(
    ("size", "name", "window", "stride"),
    [
        ((9, 40), "maximum", 3, 2),
        ((7, 5), "maximum", 3, 2),
        ((6, 67), "add", 3, 1),
        ((12, 130), "add", 2, 2),
        ((20, 50), "maximum", 5, 3),
        ((18, 41), "add", 9, 4),
        ((16, 33), "maximum", 2, 6),
    ],
)
def test_pooling(size: tuple[int, int], name: str, window: int, stride: int, target: str) -> None:
    x = np.random.default_rng(window).standard_normal((3, *size)).astype(np.float32)
    x[1, 2, 3] = np.nan
    wanted = expected(x.astype(np.float64), name, window, stride)
    text = pooling(x.shape, wanted.shape, name, window, stride)
    isa = host_target().isa if target == "host" else target
    for numerics in ("strict", "default"):
        kernel = Kernel(lower_module(text, 1, isa, CompileOptions(numerics=numerics), lambda _: None))
        (alone,), (threaded,) = kernel(x), kernel(x, host=threaded_host())
        np.testing.assert_allclose(alone, wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(alone, threaded)


def test_windows_are_reduced_in_vectors() -> None:
    text = pooling((3, 33, 64), (3, 17, 32), "maximum", 3, 2)
    kernel = Kernel(lower_module(text, 1, "x86-64-v3", CompileOptions(), lambda _: None))
    assert b"vmaxps" in kernel.compiled.artifacts["asm"]
    assert b"gather" not in kernel.compiled.artifacts["asm"]


def test_the_maximum_of_a_window_is_stored_without_a_mask() -> None:
    """Pixels of adjacent channels: each of the values of a window is compared with a maximum in memory."""
    text = pooling((1, 9, 21), (1, 4, 10), "maximum", 3, 2)
    last = re.sub(r"tensor<1x(\d+x\d+)xf32>", r"tensor<\1x64xf32>", text)
    last = last.replace("array<i64: 1, 3, 3>", "array<i64: 3, 3, 1>").replace(": 1, 2, 2>", ": 2, 2, 1>")
    last = last.replace("[[0, 0], [1, 1], [1, 0]]", "[[0, 0], [1, 0], [0, 0]]")
    compiled = lower_module(last, 1, "x86-64-v3", CompileOptions(), lambda _: None)
    stores = re.findall(rb"vmaskmovps\s+%ymm\d+, %ymm\d+, \S*\(", compiled.artifacts["asm"])
    assert b"vmaxps" in compiled.artifacts["asm"]
    assert not stores
