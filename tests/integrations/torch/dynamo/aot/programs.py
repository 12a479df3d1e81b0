"""What the tests of saved graphs compile. Other processes import it by this name, which PyTorch pickles."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU())
        self.scale = torch.nn.Parameter(torch.ones(8))
        self.register_buffer("offset", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) * self.scale + self.offset


def function(x: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(x @ weight).sum(-1) * 2


def inputs(rows: int = 4, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Of ``function``; the first is one of ``Model``."""
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(rows, 8, generator=generator), torch.randn(8, 8, generator=generator)
    return x.to(dtype), weight.to(dtype)


def assert_as_eager(compiled: Callable[[Tensor], Tensor], model: torch.nn.Module, x: Tensor) -> None:
    """Compares results, and gradients where parameters require them."""
    result, expected = compiled(x), model(x)
    torch.testing.assert_close(result, expected)
    if expected.requires_grad:
        gradients = [
            torch.autograd.grad(value.square().sum(), [*model.parameters()]) for value in (result, expected)
        ]
        torch.testing.assert_close(*gradients)
