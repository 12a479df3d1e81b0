"""The models by name: random weights, batch 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import nn

from benchmarks.models import images, sequences
from benchmarks.torch_compile import models as shared

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Model:
    """``module`` and ``inputs`` need ``package``, if it is not empty."""

    module: Callable[..., nn.Module]
    inputs: Callable[[], Inputs]
    package: str = ""


def _image(size: int = 224) -> Inputs:
    return (torch.randn(1, 3, size, size),)


def _tokens(vocabulary: int, length: int = 128) -> Callable[[], Inputs]:
    return lambda: (torch.randint(0, vocabulary, (1, length)),)


def _decoding(vocabulary: int, layers: int, heads: int, size: int) -> Callable[[], Inputs]:
    def inputs() -> Inputs:
        shape = (layers, 1, heads, sequences.CACHE, size)
        return (torch.randint(0, vocabulary, (1, 1)), torch.randn(shape), torch.randn(shape))

    return inputs


def _t5() -> Any:
    transformers: Any = import_module("transformers")
    return transformers.T5Model(transformers.T5Config()).eval()


def _t5_step() -> Inputs:
    return (*_decoding(32128, 6, 8, 64)(), torch.randn(1, 128, 512))


def _unet() -> nn.Module:
    """Of the size of google/ddpm-cifar10-32."""
    diffusers: Any = import_module("diffusers")
    model = diffusers.UNet2DModel(
        sample_size=32,
        block_out_channels=(128, 256, 256, 256),
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        layers_per_block=2,
    )
    return sequences.First(model, "sample", "timestep")


def _smoke() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


MODELS: dict[str, Model] = {
    "resnet50": Model(shared.ResNet50, _image),
    "resnet18": Model(images.ResNet18, _image),
    "mobilenetv3": Model(images.MobileNetV3Large, _image),
    "densenet121": Model(images.DenseNet121, _image),
    "vgg16": Model(images.Vgg16, _image),
    "vit": Model(images.ViT, _image),
    "swin": Model(images.SwinTiny, _image),
    "bert": Model(shared.Bert, _tokens(30522)),
    "distilbert": Model(lambda: shared.Bert(layers=6), _tokens(30522)),
    "gpt2-prefill": Model(shared.Gpt2, _tokens(shared.VOCABULARY)),
    "gpt2-decode": Model(sequences.Gpt2Decode, _decoding(shared.VOCABULARY, 12, 12, 64)),
    "llama-prefill": Model(shared.Llama, _tokens(32000)),
    "llama-decode": Model(sequences.LlamaDecode, _decoding(32000, 8, 8, 64)),
    "t5-encoder": Model(lambda: sequences.First(_t5().encoder, "input_ids"), _tokens(32128), "transformers"),
    "t5-decode": Model(lambda: sequences.T5Step(_t5()), _t5_step, "transformers"),
    "whisper-encoder": Model(sequences.WhisperEncoder, lambda: (torch.randn(1, 80, 3000),)),
    "unet": Model(_unet, lambda: (torch.randn(1, 3, 32, 32), torch.tensor([7])), "diffusers"),
    "lstm": Model(sequences.Lstm, lambda: (torch.randn(1, 64, 512),)),
}
#: Not a model of the benchmark: tries the command in seconds.
SMOKE = "smoke"
ALL = {**MODELS, SMOKE: Model(_smoke, lambda: (torch.randn(1, 64),))}


#: The types of weights and of inputs that are floats.
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def instantiate(name: str, dtype: str = "f32", **sizes: int) -> tuple[nn.Module, Inputs]:
    """The model and its inputs, the same in every process; ``sizes`` are arguments of its constructor.

    Raises ``ImportError`` without its package.
    """
    torch.manual_seed(0)
    model, kind = ALL[name], DTYPES[dtype]
    module, inputs = model.module(**sizes).eval().to(kind), model.inputs()
    return module, tuple(each.to(kind) if each.is_floating_point() else each for each in inputs)
