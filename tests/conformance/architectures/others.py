"""Networks over points, graphs, rows of tables."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Perceptron(nn.Module):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.Hardswish(), nn.Linear(32, 4), nn.Softmax(-1)
        )

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class GraphConvolution(nn.Module):
    """Two layers that add up what the edges bring, divided by the roots of degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)

    @staticmethod
    def spread(x: Any, edges: Any) -> Any:
        source, target = edges[0], edges[1]
        degree = torch.ones(x.shape[0]).index_add(0, target, torch.ones(target.shape[0]))
        scale = degree.rsqrt()
        messages = x[source] * (scale[source] * scale[target]).unsqueeze(-1)
        own = x * (scale * scale).unsqueeze(-1)
        return own.scatter_add(0, target.unsqueeze(-1).expand(-1, x.shape[1]), messages)

    def forward(self, x: Any, edges: Any) -> Any:
        x = functional.relu(self.spread(self.first(x), edges))
        return functional.log_softmax(self.spread(self.second(x), edges), -1)


class Radiance(nn.Module):
    """NeRF: sines of places, a network with a skip, colors added up along the ray."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(59, 32), nn.ReLU())
        self.density, self.color = nn.Linear(32, 1), nn.Sequential(nn.Linear(35, 3), nn.Sigmoid())

    @staticmethod
    def encoded(x: Any) -> Any:
        parts = [x]
        for power in range(4):
            parts += [torch.sin(x * 2.0**power), torch.cos(x * 2.0**power)]
        return torch.cat(parts, -1)

    def forward(self, points: Any, directions: Any, steps: Any) -> Any:
        places = self.encoded(points)
        inner = self.second(torch.cat([places, self.first(places)], -1))
        density = functional.relu(self.density(inner) + 0.5).squeeze(-1)
        along = functional.normalize(directions, dim=-1).unsqueeze(1).expand(-1, points.shape[1], -1)
        colors = self.color(torch.cat([inner, along], -1))
        alpha = 1 - torch.exp(-density * steps)
        clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha[:, :-1] + 1e-10], 1), 1)
        weights = alpha * clear
        return (weights.unsqueeze(-1) * colors).sum(1), weights.sum(1)


class Recommender(nn.Module):
    """DLRM: bags of categories and dense features, all pairs of their products."""

    pairs: Any

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(20, 8, mode="sum"), nn.EmbeddingBag(12, 8, mode="mean")])
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(11, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("pairs", torch.tril_indices(3, 3, -1))

    def forward(self, dense: Any, first: Any, second: Any) -> Any:
        x = self.bottom(dense)
        parts = [x, *(bag(tokens) for bag, tokens in zip(self.bags, (first, second), strict=True))]
        stacked = torch.stack(parts, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        chosen = products[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([x, chosen], 1)))


class PointNet(nn.Module):
    """A small network for each point, the maximum over all, a learned turn of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.points = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1))
        self.head = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))

    def forward(self, x: Any) -> Any:
        matrix = self.matrix(self.turn(x).max(-1)[0]).view(-1, 3, 3) + torch.eye(3)
        turned = torch.bmm(x.transpose(1, 2), matrix).transpose(1, 2)
        features = torch.max(self.points(turned), 2)[0]
        return functional.log_softmax(self.head(features), -1)
