"""Pooling of images with channels before rows, and with channels last: which programs are one launch, and
what it computes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel, guarded, runs_here, threaded_host

TARGETS = [target for target in ("x86-64-v2", "x86-64-v3", "x86-64-v4") if runs_here(target)]


@dataclass(frozen=True)
class Pooling:
    """A reduction of windows along the last axes; others have windows of one element."""

    shape: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...] = ()
    name: str = "maximum"
    kind: str = "f32"

    def _all(self, values: tuple[int, ...]) -> list[int]:
        return [1] * (len(self.shape) - len(values)) + list(values)

    @property
    def sizes(self) -> dict[str, list[int]]:
        steps = {"dimensions": self.window, "strides": self.stride, "dilations": self.dilation}
        return {name: self._all(values) for name, values in steps.items()}

    @property
    def all_pads(self) -> list[tuple[int, int]]:
        return [(0, 0)] * (len(self.shape) - len(self.pads)) + list(self.pads)

    @property
    def result(self) -> list[int]:
        sizes = zip(self.shape, self.all_pads, *self.sizes.values(), strict=True)
        return [(n + sum(pad) - (k - 1) * d - 1) // s + 1 for n, pad, k, s, d in sizes]

    @property
    def text(self) -> str:
        sizes = self.shape, self.result
        x, y = (f"tensor<{'x'.join(map(str, each))}x{self.kind}>" for each in sizes)
        scalar = f"tensor<{self.kind}>"
        literal = {"f32": "0x7F800000", "f64": "0x7FF0000000000000"}[self.kind]
        start = literal if self.name == "minimum" else literal.replace("0x7F", "0xFF")
        words = ", ".join(f"window_{name} = array<i64: {str(v)[1:-1]}>" for name, v in self.sizes.items())
        pads = [list(pad) for pad in self.all_pads]
        return f"""
        func.func @main(%x: {x}) -> {y} {{
          %start = stablehlo.constant dense<{start}> : {scalar}
          %0 = "stablehlo.reduce_window"(%x, %start) ({{
            ^bb0(%a: {scalar}, %b: {scalar}):
              %c = stablehlo.{self.name} %a, %b : {scalar}
              stablehlo.return %c : {scalar}
          }}) {{{words}, padding = dense<{pads}> : tensor<{len(pads)}x2xi64>}} : ({x}, {scalar}) -> {y}
          return %0 : {y}
        }}"""

    def expected(self, x: np.ndarray) -> np.ndarray:
        fill, fold = (-np.inf, np.maximum) if self.name == "maximum" else (np.inf, np.minimum)
        padded = np.pad(x, self.all_pads, constant_values=fill)
        total = np.full(self.result, fill, x.dtype)
        dimensions, strides, dilations = self.sizes.values()
        for taps in itertools.product(*map(range, dimensions)):
            first = [tap * dilation for tap, dilation in zip(taps, dilations, strict=True)]
            ends = zip(first, self.result, strides, strict=True)
            total = fold(total, padded[tuple(slice(a, a + (n - 1) * s + 1, s) for a, n, s in ends)])
        return total


RESNET = Pooling((3, 112, 112), (3, 3), (2, 2), ((1, 1), (1, 1)))
POOLED = [
    RESNET,
    replace(RESNET, shape=(2, 3, 17, 21), kind="f64", name="minimum"),
    Pooling((2, 12, 40), (2, 2), (2, 2), ((0, 0), (0, 0))),
    Pooling((3, 20, 20), (5, 5), (1, 1), ((2, 2), (2, 2))),
    Pooling((2, 11, 33), (3, 3), (1, 2), ((0, 3), (2, 0)), dilation=(2, 3)),
    Pooling((2, 9, 16), (1, 7), (2, 1), ((0, 0), (6, 6))),
    Pooling((5, 64), (4,), (2,), ((3, 1),)),
    Pooling((4, 7, 9), (3, 3), (2, 2), ((3, 3), (3, 3))),
    # Channels last.
    Pooling((14, 14, 64), (3, 3, 1), (2, 2, 1), ((1, 1), (1, 1), (0, 0))),
    Pooling((2, 13, 11, 40), (2, 3, 1), (3, 1, 1), ((0, 1), (2, 2), (0, 0)), name="minimum"),
    Pooling((3, 9, 10, 20), (2, 2, 1), (2, 2, 1), ((0, 0), (0, 0), (0, 0)), kind="f64"),
    Pooling((2, 7, 19), (1, 5, 1), (1, 2, 1), ((0, 0), (2, 2), (0, 0))),
    Pooling((17, 24), (4, 1), (3, 1), ((3, 0), (0, 0))),
    Pooling((9, 12, 16), (3, 3, 1), (1, 1, 1), ((0, 0), (0, 0), (0, 0)), dilation=(2, 3, 1)),
    Pooling((8, 5, 6, 16), (3, 1, 2, 1), (2, 1, 2, 1), ((1, 0), (0, 0), (0, 1), (0, 0))),
]


def lowered(text: str, target: str = TARGETS[-1], numerics: str = "default") -> Kernel:
    return Kernel(lower_module(text, 1, target, CompileOptions(numerics=numerics), lambda _: None))


def image(pooling: Pooling) -> np.ndarray:
    """Random elements, NaN, infinities and zeros of both signs."""
    draw = np.random.default_rng(len(pooling.text))
    x = draw.standard_normal(pooling.shape)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0])
    x = np.where(draw.random(x.shape) < 0.1, draw.choice(special, x.shape), x)
    return x.astype({"f32": np.float32, "f64": np.float64}[pooling.kind])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pooling", POOLED, ids=str)
def test_results(pooling: Pooling, target: str) -> None:
    """Also where memory ends right behind the image, and on three threads."""
    x = image(pooling)
    kernel = lowered(pooling.text, target)
    assert [launch.ops for launch in kernel.interface.launches] == [(f"arith.{pooling.name}f",)]
    (alone,), (shared,) = kernel(guarded(x)), kernel(x, host=threaded_host())
    np.testing.assert_array_equal(alone, pooling.expected(x))
    np.testing.assert_array_equal(shared, alone)


def test_strict_maxima_of_zeros_have_the_sign_of_the_greatest() -> None:
    pooling = Pooling((2, 8, 32), (2, 2), (2, 2), ((0, 0), (0, 0)))
    x = np.where(np.random.default_rng(0).random(pooling.shape) < 0.2, 0.0, -0.0).astype(np.float32)
    (result,) = lowered(pooling.text, numerics="strict")(x)
    positive = pooling.expected((~np.signbit(x)).astype(np.float32)) == 1
    np.testing.assert_array_equal(~np.signbit(result), positive)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "pooling",
    [
        replace(RESNET, stride=(2, 3)),
        replace(RESNET, shape=(9, 5)),
        Pooling((1, 40, 40), (17, 17), (1, 1), ((8, 8), (8, 8))),
        Pooling((3, 9, 9, 9), (3, 3, 3), (1, 1, 1), ((1, 1), (1, 1), (1, 1))),
        Pooling((9, 9, 16), (3, 3, 1), (1, 1, 1), ((2, 2), (2, 2), (0, 0)), dilation=(2, 2, 1)),
        Pooling((7, 9, 16), (3, 3, 1), (2, 2, 1), ((3, 3), (3, 3), (0, 0))),
        Pooling((9, 9, 16), (7, 7, 1), (1, 1, 1), ((3, 3), (3, 3), (0, 0))),
        Pooling((9, 9, 3), (3, 3, 1), (1, 1, 1), ((1, 1), (1, 1), (0, 0))),
    ],
    ids=str,
)
def test_others_are_loops(pooling: Pooling) -> None:
    """Steps of three, short rows, long windows, windows along three axes; channels last with windows that may
    have no element of the image, or not the nearest one, with many taps, and with few channels.
    """
    x = image(pooling)
    kernel = lowered(pooling.text)
    assert kernel.interface.launches[0].ops == ("pad",)
    np.testing.assert_array_equal(kernel(x)[0], pooling.expected(x))


def test_padding_that_another_operation_reads_stays() -> None:
    kinds = {"%X": "tensor<2x12x20xf32>", "%P": "tensor<2x14x22xf32>", "%Y": "tensor<2x7x11xf32>"}
    text = """
    func.func @main(%x: %X) -> (%Y, %P) {
      %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %0 = stablehlo.pad %x, %least, low = [0, 1, 1], high = [0, 1, 1], interior = [0, 0, 0]
        : (%X, tensor<f32>) -> %P
      %1 = "stablehlo.reduce_window"(%0, %least) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.maximum %a, %b : tensor<f32>
          stablehlo.return %c : tensor<f32>
      }) {window_dimensions = array<i64: 1, 2, 2>, window_strides = array<i64: 1, 2, 2>}
        : (%P, tensor<f32>) -> %Y
      return %1, %0 : %Y, %P
    }"""
    for name, kind in kinds.items():
        text = text.replace(name, kind)
    x = np.random.default_rng(1).standard_normal((2, 12, 20)).astype(np.float32)
    kernel = lowered(text)
    pooled, padded = kernel(x)
    assert [launch.ops for launch in kernel.interface.launches] == [("pad",), ("arith.maximumf",)]
    np.testing.assert_array_equal(padded, np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf))
    np.testing.assert_array_equal(pooled, padded.reshape(2, 7, 2, 11, 2).max((2, 4)))
