"""Convolutional networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def norm(channels: int) -> nn.BatchNorm2d:
    """Batch norm of inference with statistics that are not 0 and 1."""
    norm_layer = nn.BatchNorm2d(channels)
    norm_layer.running_mean = torch.randn(channels) * 0.1
    norm_layer.running_var = torch.rand(channels) + 0.5
    return norm_layer


def block(channels: int, out: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and its norm; the bias is the norm's."""
    conv = nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, norm(out))


class LeNet(nn.Module):
    """Two convolutions with average pools, three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
        )
        self.head = nn.Sequential(
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)
        )

    def forward(self, x: Any) -> Any:
        return self.head(self.features(x).flatten(1))


class Residual(nn.Module):
    """The basic block of ResNet."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = block(channels, out, 3, stride)
        self.second = block(out, out)
        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else block(channels, out, 1, stride)

    def forward(self, x: Any) -> Any:
        return functional.relu(self.second(functional.relu(self.first(x))) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-18 at an eighth of its width."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(block(3, 8, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        channels = 8
        for out, stride in ((8, 1), (8, 1), (16, 2), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
            blocks.append(Residual(channels, out, stride))
            channels = out
        self.blocks = nn.Sequential(*blocks)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))


class SqueezeExcite(nn.Module):
    """Channels weighed by what a small network says of their means."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Any) -> Any:
        scale = functional.silu(self.reduce(functional.adaptive_avg_pool2d(x, 1)))
        return x * torch.sigmoid(self.expand(scale))


class Inverted(nn.Module):
    """The inverted residual of MobileNet-v2; with squeeze and excite that of EfficientNet."""

    def __init__(self, channels: int, out: int, stride: int, size: int, excite: bool) -> None:
        super().__init__()
        wide = channels * 4
        act: type[nn.Module] = nn.SiLU if excite else nn.ReLU6
        parts: list[nn.Module] = [
            block(channels, wide, 1),
            act(),
            block(wide, wide, size, stride, wide),
            act(),
        ]
        if excite:
            parts.append(SqueezeExcite(wide, max(1, channels // 4)))
        self.parts = nn.Sequential(*parts, block(wide, out, 1))
        self.residual = stride == 1 and channels == out

    def forward(self, x: Any) -> Any:
        branch = self.parts(x)
        return x + branch if self.residual else branch


class Mobile(nn.Module):
    """MobileNet-v2, or EfficientNet, with a few of their blocks."""

    def __init__(self, excite: bool) -> None:
        super().__init__()
        act: type[nn.Module] = nn.SiLU if excite else nn.ReLU6
        size = 5 if excite else 3
        plan = ((8, 8, 1), (8, 12, 2), (12, 12, 1), (12, 16, 2), (16, 16, 1))
        self.features = nn.Sequential(
            block(3, 8, 3, 2),
            act(),
            *(Inverted(channels, out, stride, size, excite) for channels, out, stride in plan),
            block(16, 64, 1),
            act(),
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, x: Any) -> Any:
        return self.head(self.features(x).mean((2, 3)))


def twice(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(block(channels, out), nn.ReLU(), block(out, out), nn.ReLU())


class UNet(nn.Module):
    """Two levels down and up, with the way across."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([twice(3, 8), twice(8, 16)])
        self.bottom = twice(16, 32)
        self.widen = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.up = nn.ModuleList([twice(32, 16), twice(16, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        kept: list[Any] = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for widen, up in zip(self.widen, self.up, strict=True):
            x = up(torch.cat([kept.pop(), widen(x)], 1))
        return self.head(x)


class DenseNet(nn.Module):
    """Dense blocks, each layer reading all before it, and transitions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layers = nn.ModuleList([self.layer(8 + 4 * i) for i in range(3)])
        self.between = nn.Sequential(norm(20), nn.ReLU(), nn.Conv2d(20, 10, 1), nn.AvgPool2d(2))
        self.more = nn.ModuleList([self.layer(10 + 4 * i) for i in range(3)])
        self.head = nn.Linear(22, 10)

    @staticmethod
    def layer(channels: int) -> nn.Sequential:
        return nn.Sequential(norm(channels), nn.ReLU(), nn.Conv2d(channels, 4, 3, padding=1, bias=False))

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        x = self.between(x)
        for layer in self.more:
            x = torch.cat([x, layer(x)], 1)
        return self.head(functional.adaptive_avg_pool2d(functional.relu(x), (1, 1)).flatten(1))


class ConvNeXtBlock(nn.Module):
    """A 7x7 depthwise convolution, layer norm and two linear layers in channels-last order."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.widen, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(functional.gelu(self.widen(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """A patch stem, blocks and one transition."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 4, 4)
        self.first, self.second = ConvNeXtBlock(16), ConvNeXtBlock(24)
        self.between, self.norm = nn.Conv2d(16, 24, 2, 2), nn.LayerNorm(24)
        self.head = nn.Linear(24, 10)

    def forward(self, x: Any) -> Any:
        x = self.second(self.between(self.first(self.stem(x))))
        return self.head(self.norm(x.mean((-2, -1))))


class Generator(nn.Module):
    """The generator of DCGAN: transposed convolutions from noise to a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False),
            norm(32),
            nn.ReLU(True),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
            norm(16),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(16, 3, 3, 2, 1, output_padding=1),
            nn.Tanh(),
        )

    def forward(self, noise: Any) -> Any:
        return self.layers(noise)


class Autoencoder(nn.Module):
    """A variational autoencoder; its noise is an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ELU(), nn.Flatten()
        )
        self.mean, self.deviation = nn.Linear(256, 4), nn.Linear(256, 4)
        self.decoder = nn.Sequential(
            nn.Linear(4, 256),
            nn.Unflatten(1, (16, 4, 4)),
            nn.ConvTranspose2d(16, 8, 4, 2, 1),
            nn.ELU(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(8, 1, 3, padding=1),
        )

    def forward(self, x: Any, noise: Any) -> Any:
        features = self.encoder(x)
        mean, logs = self.mean(features), self.deviation(features)
        image = self.decoder(mean + noise * torch.exp(0.5 * logs))
        divergence = -0.5 * torch.sum(1 + logs - mean.pow(2) - logs.exp(), 1)
        return torch.sigmoid(image), functional.binary_cross_entropy_with_logits(image, x), divergence
