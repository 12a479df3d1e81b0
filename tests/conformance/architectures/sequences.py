"""Recurrent networks, convolutions over time, scans."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Recurrent(nn.Module):
    """Words through an LSTM of two layers and two directions, or a GRU, to classes and last states."""

    def __init__(self, kind: type[nn.RNNBase], both: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.layers = kind(12, 16, num_layers=2, batch_first=True, bidirectional=both)  # type: ignore[call-arg]
        self.head = nn.Linear(32 if both else 16, 5)

    def forward(self, words: Any) -> Any:
        outputs, state = self.layers(self.words(words))
        state = state[0] if isinstance(state, tuple) else state
        return self.head(outputs[:, -1]), state


class WaveNet(nn.Module):
    """Causal convolutions, dilated and gated, with skips."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, 8, 1)
        self.dilated = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(4)])
        self.residual = nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(4)])
        self.skips = nn.ModuleList([nn.Conv1d(8, 16, 1) for _ in range(4)])
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(16, 16, 1), nn.ReLU(), nn.Conv1d(16, 32, 1))

    def forward(self, x: Any) -> Any:
        x = self.start(x)
        total = 0
        for i, (dilated, residual, skip) in enumerate(
            zip(self.dilated, self.residual, self.skips, strict=True)
        ):
            filters, gates = dilated(functional.pad(x, (2**i, 0))).chunk(2, 1)
            mixed = torch.tanh(filters) * torch.sigmoid(gates)
            total = total + skip(mixed)
            x = x + residual(mixed)
        return self.end(total)


class Mamba(nn.Module):
    """A selective state space: a short convolution, steps from the input, a scan over time."""

    def __init__(self, width: int = 8, states: int = 4, rank: int = 2) -> None:
        super().__init__()
        self.states, self.rank = states, rank
        self.open = nn.Linear(width, 4 * width, bias=False)
        self.conv = nn.Conv1d(2 * width, 2 * width, 4, groups=2 * width, padding=3)
        self.choose = nn.Linear(2 * width, rank + 2 * states, bias=False)
        self.step = nn.Linear(rank, 2 * width)
        self.logs = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(2 * width, 1))
        self.skip, self.out = nn.Parameter(torch.ones(2 * width)), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Any) -> Any:
        length = x.shape[1]
        inner, gate = self.open(x).chunk(2, -1)
        inner = self.conv(inner.transpose(1, 2))[..., :length].transpose(1, 2)
        inner = functional.silu(inner)
        step, into, outof = self.choose(inner).split([self.rank, self.states, self.states], -1)
        step = functional.softplus(self.step(step))
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.logs))
        pushed = step.unsqueeze(-1) * into.unsqueeze(2) * inner.unsqueeze(-1)
        state = torch.zeros_like(pushed[:, 0])
        outputs: list[Any] = []
        for t in range(length):
            state = decay[:, t] * state + pushed[:, t]
            outputs.append(torch.einsum("bds,bs->bd", state, outof[:, t]))
        y = torch.stack(outputs, 1) + inner * self.skip
        return self.out(y * functional.silu(gate))
