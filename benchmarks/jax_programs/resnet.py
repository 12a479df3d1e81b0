"""ResNet-50, inference: ``lax.conv_general_dilated`` and batch norms, in either layout."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

#: Channels and blocks of the stages.
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))


def _convolution(draw: np.random.Generator, inner: int, outer: int, size: int) -> dict[str, Any]:
    """A window ``[rows, columns, inner, outer]``, and the batch norm behind it."""

    def vector(mean: float) -> Any:
        return (mean + 0.1 * draw.standard_normal(outer)).astype(np.float32)

    scale = np.float32((2 / (inner * size * size)) ** 0.5)
    return {
        "w": draw.standard_normal((size, size, inner, outer), np.float32) * scale,
        "scale": vector(1),
        "bias": vector(0),
        "mean": vector(0),
        "var": np.abs(vector(1)),
    }


def weights(draw: np.random.Generator) -> dict[str, Any]:
    """25.6 M parameters, and the statistics of the batch norms."""
    blocks: list[dict[str, Any]] = []
    inner = 64
    for width, count in STAGES:
        for number in range(count):
            block = {
                "1": _convolution(draw, inner, width, 1),
                "2": _convolution(draw, width, width, 3),
                "3": _convolution(draw, width, 4 * width, 1),
            }
            if number == 0:
                block["down"] = _convolution(draw, inner, 4 * width, 1)
            blocks.append(block)
            inner = 4 * width
    head = draw.standard_normal((inner, 1000), np.float32) * np.float32(0.02)
    stem = _convolution(draw, 3, 64, 7)
    return {"stem": stem, "blocks": blocks, "head": {"w": head, "b": np.zeros(1000, np.float32)}}


class ResNet50:
    """The function of weights and image; images and activations are ``layout``, "NHWC" or "NCHW"."""

    def __init__(self, layout: str) -> None:
        self.layout = layout
        #: Of a window in memory: as the layout's users have it.
        self.window = "HWIO" if layout == "NHWC" else "OIHW"

    def weights(self, draw: np.random.Generator) -> dict[str, Any]:
        if self.layout == "NHWC":
            return weights(draw)
        return jax.tree.map(
            lambda w: np.ascontiguousarray(w.transpose(3, 2, 0, 1)) if w.ndim == 4 else w, weights(draw)
        )

    def image(self, draw: np.random.Generator) -> Any:
        shape = (1, 224, 224, 3) if self.layout == "NHWC" else (1, 3, 224, 224)
        return draw.standard_normal(shape, np.float32)

    def __call__(self, p: dict[str, Any], image: jax.Array) -> jax.Array:
        """Logits, f32, batch x 1000."""
        x = jax.nn.relu(self._convolved(image, p["stem"], 2, 3))
        x = self._pooled(x)
        block = iter(p["blocks"])
        for stage, (_, count) in enumerate(STAGES):
            for number in range(count):
                x = self._block(x, next(block), 2 if stage and number == 0 else 1)
        x = x.mean([self.layout.index(axis) for axis in "HW"])
        return x @ p["head"]["w"] + p["head"]["b"]

    def _block(self, x: jax.Array, p: dict[str, Any], stride: int) -> jax.Array:
        y = jax.nn.relu(self._convolved(x, p["1"], 1, 0))
        y = jax.nn.relu(self._convolved(y, p["2"], stride, 1))
        y = self._convolved(y, p["3"], 1, 0)
        return jax.nn.relu(y + (self._convolved(x, p["down"], stride, 0) if "down" in p else x))

    def _convolved(self, x: jax.Array, p: dict[str, jax.Array], stride: int, padding: int) -> jax.Array:
        x = lax.conv_general_dilated(
            x, p["w"], (stride, stride), [(padding, padding)] * 2,
            dimension_numbers=(self.layout, self.window, self.layout),
        )  # fmt: skip
        axes = [axis for axis in range(4) if self.layout[axis] != "C"]
        mean, var, scale, bias = (jnp.expand_dims(p[n], axes) for n in ("mean", "var", "scale", "bias"))
        return (x - mean) * (lax.rsqrt(var + 1e-5) * scale) + bias

    def _pooled(self, x: jax.Array) -> jax.Array:
        spatial = [axis in "HW" for axis in self.layout]
        window, strides = (tuple(size if each else 1 for each in spatial) for size in (3, 2))
        padding = [(1, 1) if each else (0, 0) for each in spatial]
        return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)
