"""Convolutions of bf16 with bound weights, computed with channels last: values beside those in f64."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound.rewrite import rewrite_bound
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import runs_here, threaded_host
from tests.compiler.lower.bound.test_bound import Bound

RANDOM = np.random.default_rng(20261201)
TARGETS = [
    pytest.param(name, marks=pytest.mark.skipif(not runs_here(name), reason=f"no {name} here"))
    for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4", "sapphirerapids", "aarch64")
]


class Layer(NamedTuple):
    """The sizes of an image and of weights, both with channels first, and how they are convolved."""

    image: tuple[int, ...]
    weights: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    groups: int = 1


LAYERS = {
    "1x1": Layer((1, 40, 7, 9), (70, 40, 1, 1)),
    "3x3": Layer((2, 24, 9, 11), (33, 24, 3, 3), padding=1),
    "odd channels": Layer((1, 17, 8, 8), (19, 17, 3, 3), padding=1),
    "stride": Layer((1, 32, 13, 13), (48, 32, 3, 3), stride=2, padding=1),
    "image": Layer((1, 3, 21, 21), (16, 3, 7, 7), stride=2, padding=3),
    "groups": Layer((1, 24, 9, 9), (36, 8, 3, 3), padding=1, groups=3),
    "depthwise": Layer((1, 40, 10, 10), (40, 1, 3, 3), padding=1, groups=40),
    "sequence": Layer((2, 20, 50), (30, 20, 3), padding=1),
}


def _convolution(layer: Layer, image: Any, weights: Any) -> Any:
    space = len(layer.image) - 2
    strides, padding = (layer.stride,) * space, [(layer.padding, layer.padding)] * space
    dims = ("NCH", "OIH", "NCH") if space == 1 else ("NCHW", "OIHW", "NCHW")
    return jax.lax.conv_general_dilated(
        image, weights, strides, padding, dimension_numbers=dims, feature_group_count=layer.groups
    )


def _text(function: Any, arrays: list[np.ndarray]) -> str:
    return jax.jit(function, keep_unused=True).lower(*arrays).as_text("stablehlo")


def _normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(ml_dtypes.bfloat16)


def _exact(function: Any, arrays: list[np.ndarray]) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(function(*(jnp.asarray(array.astype("f8")) for array in arrays)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LAYERS)
def test_values(name: str, target: str) -> None:
    """Sums round as f32 does, and the result once."""
    layer = LAYERS[name]
    arrays = [_normal(*layer.image), _normal(*layer.weights)]

    def convolved(image: Any, weights: Any) -> Any:
        return _convolution(layer, image, weights)

    kernel = Bound(_text(convolved, arrays), 2, [1], "default", 3, target)
    prepared = kernel.prepare(arrays[1])
    exact = _exact(convolved, arrays)
    bound = 2.0**-20 * _exact(convolved, [abs(array) for array in arrays]) + 2.0**-8 * abs(exact)
    for host in (None, threaded_host()):
        (result,) = kernel.run(prepared, arrays[0], host=host)
        assert (abs(result.astype("f8") - exact) <= bound).all()


def _network(image: Any, *weights: Any) -> Any:
    """A residual block with batch norms in f32, as PyTorch computes them, and the average of its pixels."""
    first, second, third, gain, shift = weights

    def normed(x: Any) -> Any:
        wide = x.astype(jnp.float32 if x.dtype != jnp.float64 else x.dtype)
        scale, offset = (each.astype(wide.dtype)[:, None, None] for each in (gain, shift))
        return ((wide - offset) * scale + offset).astype(x.dtype)

    value = jnp.maximum(0, normed(_convolution(Layer((1, 3, 14, 14), (), padding=1), image, first)))
    inner = jnp.maximum(0, normed(_convolution(Layer((1, 16, 14, 14), (), padding=1), value, second)))
    value = jnp.maximum(0, normed(_convolution(Layer((1, 16, 14, 14), ()), inner, third)) + value)
    return value.mean((2, 3))


@pytest.mark.parametrize("target", TARGETS)
def test_a_network_has_channels_last(target: str) -> None:
    shapes = [(1, 3, 14, 14), (16, 3, 3, 3), (16, 16, 3, 3), (16, 16, 1, 1), (16,), (16,)]
    arrays = [(_normal(*shape).astype("f4") / 4).astype(ml_dtypes.bfloat16) for shape in shapes]
    text = _text(_network, arrays)
    bound = [1, 2, 3, 4, 5]
    with mlir.new_context(), mlir.unknown_location():
        rewritten = rewrite_bound(text, bound, CompileOptions())
    assert rewritten.count("->[b, 0, 1, f]") == 3
    kernel = Bound(text, 6, bound, "default", 3, target)
    prepared = kernel.prepare(*arrays[1:])
    exact = _exact(_network, arrays)
    (result,) = kernel.run(prepared, arrays[0])
    assert np.linalg.norm(result.astype("f8") - exact) < 2.0**-7 * np.linalg.norm(exact)
