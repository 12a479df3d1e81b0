"""The models by name: each made with its inputs, from a seed of its own."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.conformance.architectures import images, others, sequences, transformers

Made = tuple[nn.Module, tuple[Any, ...]]


def numbers(high: int, *shape: int) -> Any:
    return torch.randint(0, high, shape)


def rand(*shape: int) -> Any:
    return torch.randn(*shape)


def _padding() -> Any:
    return torch.arange(9) >= torch.tensor([[9], [6]])


MODELS: dict[str, Callable[[], Made]] = {
    "MLP": lambda: (others.Perceptron(), (rand(4, 16),)),
    "LeNet": lambda: (images.LeNet(), (rand(2, 1, 28, 28),)),
    "ResNet-18": lambda: (images.ResNet(), (rand(2, 3, 32, 32),)),
    "MobileNet-v2": lambda: (images.Mobile(False), (rand(2, 3, 32, 32),)),
    "EfficientNet": lambda: (images.Mobile(True), (rand(2, 3, 32, 32),)),
    "U-Net": lambda: (images.UNet(), (rand(1, 3, 16, 16),)),
    "DenseNet": lambda: (images.DenseNet(), (rand(2, 3, 12, 12),)),
    "ConvNeXt": lambda: (images.ConvNeXt(), (rand(2, 3, 32, 32),)),
    "DCGAN": lambda: (images.Generator(), (rand(2, 16, 1, 1),)),
    "VAE": lambda: (images.Autoencoder(), (torch.rand(2, 1, 16, 16), rand(2, 4))),
    "ViT": lambda: (transformers.ViT(), (rand(2, 3, 16, 16),)),
    "Swin": lambda: (transformers.Swin(), (rand(2, 3, 32, 32),)),
    "GPT": lambda: (transformers.GPT(), (numbers(50, 2, 9),)),
    "BERT": lambda: (transformers.BERT(), (numbers(50, 2, 9), numbers(2, 2, 9), _padding())),
    "T5": lambda: (transformers.T5(), (numbers(50, 2, 40),)),
    "Llama": lambda: (transformers.Llama(), (numbers(50, 2, 9),)),
    "mixture of experts": lambda: (transformers.Experts(), (rand(2, 7, 32),)),
    "encoder and decoder": lambda: (transformers.Translator(), (numbers(50, 2, 8), numbers(40, 2, 6))),
    "LSTM": lambda: (sequences.Recurrent(nn.LSTM, True), (numbers(30, 3, 7),)),
    "GRU": lambda: (sequences.Recurrent(nn.GRU, False), (numbers(30, 3, 7),)),
    "WaveNet": lambda: (sequences.WaveNet(), (rand(2, 1, 40),)),
    "Mamba": lambda: (sequences.Mamba(), (rand(2, 10, 8),)),
    "graph convolution": lambda: (others.GraphConvolution(), (rand(7, 6), numbers(7, 2, 15))),
    "NeRF": lambda: (others.Radiance(), (rand(4, 8, 3), rand(4, 3), torch.rand(4, 8))),
    "DLRM": lambda: (others.Recommender(), (rand(4, 5), numbers(20, 4, 3), numbers(12, 4, 2))),
    "PointNet": lambda: (others.PointNet(), (rand(2, 3, 20),)),
}


def instantiate(name: str) -> Made:
    """The model in inference mode, and its inputs."""
    with torch.random.fork_rng():
        torch.manual_seed(zlib.crc32(name.encode()))
        module, inputs = MODELS[name]()
        return module.eval(), inputs
