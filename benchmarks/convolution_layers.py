"""Layers of convolutional networks, channels last with bound weights, beside PyTorch's with packed weights.

``python -m benchmarks.convolution_layers [--rounds N] [--only TEXT]``, on one thread, f32. A layer is a
convolution with bias and ReLU. PyTorch runs what its compiler runs for frozen models: a convolution of oneDNN
with weights in oneDNN's own order. Seconds are those that the thread computed, so that other processes
lengthen them less. Both allocate their results, in memory that malloc keeps: new pages would take longer than
small layers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kcache_grpc as kcache
from benchmarks.bound_arguments import computed
from benchmarks.environment import clear_and_restart
from benchmarks.rounds import Contender, interleave, ratio

CALLS = 5
#: Images of a batch.
IMAGES = 2
#: Sizes up to which malloc takes memory from what it keeps, and up to which it keeps memory.
KEPT = {name: str(1 << 30) for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")}


@dataclass(frozen=True)
class Layer:
    """A square image and window, padded so that stride 1 keeps the size."""

    size: int
    inputs: int
    outputs: int
    window: int = 1
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        depthwise = " depthwise" if self.groups > 1 else ""
        window = f"{self.window}x{self.window}{depthwise}, stride {self.stride}"
        return f"{self.inputs} to {self.outputs} channels of {self.size}x{self.size}, {window}"

    @property
    def results(self) -> int:
        return (self.size - 1) // self.stride + 1

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        products = self.window**2 * self.inputs // self.groups
        return 2 * IMAGES * self.results**2 * self.outputs * products

    def text(self) -> str:
        x = f"tensor<{IMAGES}x{self.size}x{self.size}x{self.inputs}xf32>"
        w = f"tensor<{self.window}x{self.window}x{self.inputs // self.groups}x{self.outputs}xf32>"
        y, b = (
            f"tensor<{IMAGES}x{self.results}x{self.results}x{self.outputs}xf32>",
            f"tensor<{self.outputs}xf32>",
        )
        pads = [[self.window // 2] * 2] * 2
        return f"""
func.func @main(%x: {x}, %w: {w}, %b: {b}) -> {y} {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{stride = {[self.stride] * 2}, pad = {pads}}}
    {{batch_group_count = 1 : i64, feature_group_count = {self.groups} : i64}} : ({x}, {w}) -> {y}
  %1 = stablehlo.broadcast_in_dim %b, dims = [3] : ({b}) -> {y}
  %2 = stablehlo.add %0, %1 : {y}
  %3 = stablehlo.constant dense<0.0> : {y}
  %4 = stablehlo.maximum %2, %3 : {y}
  return %4 : {y}
}}"""


LAYERS = (
    *(Layer(224, 3, 64, 7, 2), Layer(56, 64, 64), Layer(56, 64, 64, 3), Layer(56, 64, 256)),
    *(Layer(56, 256, 128), Layer(56, 128, 128, 3, 2), Layer(28, 128, 128, 3), Layer(14, 256, 256, 3)),
    *(Layer(14, 1024, 256), Layer(7, 512, 512, 3), Layer(7, 2048, 512), Layer(224, 3, 16, 3, 2)),
    *(Layer(112, 16, 16, 3, 1, 16), Layer(112, 16, 64), Layer(112, 64, 64, 3, 2, 64), Layer(56, 64, 24)),
    *(Layer(56, 24, 72), Layer(56, 72, 72, 5, 2, 72), Layer(28, 120, 120, 5, 1, 120), Layer(28, 72, 40)),
    *(Layer(14, 80, 480), Layer(14, 672, 672, 3, 1, 672), Layer(7, 960, 960, 5, 1, 960), Layer(7, 960, 160)),
)


def contenders(client: kcache.Client, layer: Layer) -> dict[str, Contender]:
    """Both, after their results were compared."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((IMAGES, layer.size, layer.size, layer.inputs), np.float32)
    shape = (layer.window, layer.window, layer.inputs // layer.groups, layer.outputs)
    w = draw.standard_normal(shape, np.float32) / np.float32(np.sqrt(np.prod(shape[:3])))
    b = draw.standard_normal(layer.outputs, np.float32)
    ours = client.compile(layer.text(), bound=[1, 2]).bind({1: w, 2: b})
    rival = _rival(layer, x, w, b)
    np.testing.assert_allclose(ours(x)[0], rival().permute(0, 2, 3, 1).numpy(), atol=1e-3)
    return {"kcache": computed(lambda: ours(x)), "torch": computed(rival)}


def _rival(layer: Layer, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    image, bias = torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(b)
    weights = torch.from_numpy(w).permute(3, 2, 0, 1).contiguous()
    numbers = ([layer.window // 2] * 2, [layer.stride] * 2, [1, 1], layer.groups)
    operators = torch.ops.mkldnn
    packed = operators._reorder_convolution_weight(weights, *numbers, list(image.shape))
    return lambda: operators._convolution_pointwise(image, packed, bias, *numbers, "relu", [], "")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="layers whose description contains this text")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, kcache.Client(cache_dir=Path(directory)) as client:
        for layer in (layer for layer in LAYERS if arguments.only in str(layer)):
            both = contenders(client, layer)
            samples = interleave(both, rounds=arguments.rounds, calls=CALLS)
            middle, low, high = ratio(samples["torch"], samples["kcache"])
            least = samples["kcache"].spread[0]
            print(
                f"{layer}: {least * 1e6:.0f} us, {layer.operations / least / 1e9:.0f} GFLOP/s; "
                f"torch / kcache {middle:.2f} ({low:.2f} to {high:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    if not KEPT.items() <= os.environ.items():
        command = [sys.executable, "-m", "benchmarks.convolution_layers", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | KEPT)
    clear_and_restart("benchmarks.convolution_layers")
    os.environ["KCACHE_NUM_THREADS"] = "1"
    main()
