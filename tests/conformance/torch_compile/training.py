"""Training loops: losses by the backend beside those of eager mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from kcache_grpc.integrations.torch.dynamo.backend import kcache
from tests.conformance.architectures import images, transformers

STEPS = 20


@dataclass(frozen=True)
class Loop:
    """``batch`` returns inputs and targets; ``tolerance``: of a loss, relative to the first."""

    make: Callable[[], nn.Module]
    batch: Callable[[], tuple[Any, Any]]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    tolerance: float
    autocast: bool = False


class Classifier(nn.Module):
    """Convolutions with batch norms, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(images.block(3, 8), nn.ReLU(), images.block(8, 16, 3, 2), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.features(x).mean((2, 3)))


class Tagger(nn.Module):
    """An encoder layer between an embedding and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.block = nn.Embedding(20, transformers.WIDTH), transformers.Block()
        self.head = nn.Linear(transformers.WIDTH, 4)

    def forward(self, words: Any) -> Any:
        return self.head(self.block(self.words(words))).flatten(0, 1)


class Perceptron(nn.Module):
    """Two linear layers with a norm between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def _pictures() -> tuple[Any, Any]:
    return torch.randn(8, 3, 12, 12), torch.randint(0, 4, (8,))


def _sentences() -> tuple[Any, Any]:
    words = torch.randint(0, 20, (4, 8))
    return words, (words % 4).flatten()


def _rows() -> tuple[Any, Any]:
    rows = torch.randn(32, 16)
    return rows, rows[:, :4].argmax(1)


LOOPS: dict[str, Loop] = {
    "SGD with momentum, convolutions": Loop(
        Classifier, _pictures, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), 1e-3
    ),
    "Adam, transformer": Loop(Tagger, _sentences, lambda p: torch.optim.Adam(p, lr=1e-3), 1e-4),
    # bf16 has a unit in the last place of 2^-8, and fused operators round less often.
    "AdamW, autocast to bf16": Loop(
        Perceptron, _rows, lambda p: torch.optim.AdamW(p, lr=1e-3), 2e-2, autocast=True
    ),
}


def losses(loop: Loop, compile: Callable[[nn.Module], Callable[..., Any]], steps: int = STEPS) -> list[float]:
    """The losses of a loop from a fixed seed; ``compile`` returns what computes the module."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = loop.make().train()
        function = compile(module)
        optimizer = loop.optimizer(module.parameters())
        values: list[float] = []
        for _ in range(steps):
            inputs, targets = loop.batch()
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=loop.autocast):
                loss = functional.cross_entropy(function(inputs), targets)
            loss.backward()
            optimizer.step()
            values.append(float(loss.detach()))
    return values


def difference(loop: Loop, options: Mapping[str, Any], steps: int = STEPS) -> tuple[float, list[float]]:
    """The largest difference of a loss from eager mode's, relative to the first; and the losses."""
    torch.compiler.reset()
    expected = losses(loop, lambda module: module, steps)
    chosen = {"strict": True, **options}
    actual = losses(loop, lambda module: torch.compile(module, backend=kcache, options=chosen), steps)
    apart = [abs(a - b) for a, b in zip(actual, expected, strict=True)]
    return max(apart) / expected[0], actual
