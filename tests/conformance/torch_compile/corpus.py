"""The models by name: those written in plain PyTorch, and those of libraries."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tests.conformance.architectures import corpus, images
from tests.conformance.torch_compile import decoders, libraries
from tests.conformance.torch_compile.model import Calls, Model, called_with


def _plain(make: Callable[[], corpus.Made]) -> Model:
    def with_calls() -> tuple[nn.Module, Calls]:
        module, inputs = make()
        return module, called_with(*inputs)

    return Model(with_calls)


def _words() -> torch.Tensor:
    return corpus.numbers(50, 2, 8)


#: Models that need PyTorch only.
PLAIN: dict[str, Model] = {
    **{name: _plain(make) for name, make in corpus.MODELS.items()},
    # Batch norms over a single pixel of two images would make gradients that are rounding errors.
    "ResNet-18": _plain(lambda: (images.ResNet(), (corpus.rand(4, 3, 64, 64),))),
    "decoder, static cache": Model(
        lambda: (decoders.StaticDecoder(), decoders.static_steps(_words())), trains=False
    ),
    "decoder, dynamic cache": Model(
        lambda: (decoders.DynamicDecoder(), decoders.dynamic_steps(_words())), trains=False
    ),
    "LSTM cells": _plain(lambda: (decoders.Cells(nn.LSTMCell), (corpus.numbers(30, 3, 5),))),
    "GRU cells": _plain(lambda: (decoders.Cells(nn.GRUCell), (corpus.numbers(30, 3, 5),))),
    "diffusion block": _plain(
        lambda: (decoders.DiffusionBlock(), (corpus.rand(2, 9, 32), torch.tensor([3, 7])))
    ),
}
MODELS: dict[str, Model] = {**PLAIN, **libraries.MODELS}
