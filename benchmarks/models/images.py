"""Image models at their real size in plain PyTorch, beside those of ``benchmarks.torch_compile.models``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

from benchmarks.torch_compile.models import Attention, Feed, convolution


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        first = [*convolution(inputs, width, 3, stride), nn.ReLU()]
        self.body = nn.Sequential(*first, *convolution(width, width, 3))
        changes = stride != 1 or inputs != width
        self.shortcut = nn.Sequential(*convolution(inputs, width, 1, stride)) if changes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet18(nn.Sequential):
    """He et al., "Deep residual learning for image recognition", 2015."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        inputs = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [BasicBlock(inputs, width, stride), BasicBlock(width, width, 1)]
            inputs = width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Vgg16(nn.Sequential):
    """Simonyan and Zisserman, "Very deep convolutional networks", 2014, configuration D."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        inputs = 3
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                layer = nn.Conv2d(inputs, width, 3, padding=1)
                nn.init.kaiming_normal_(layer.weight)
                layers += [layer, nn.ReLU()]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        head = [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
        super().__init__(*layers, *head, nn.Linear(4096, 1000))


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        wide = convolution(inputs, 4 * growth, 1)
        self.body = nn.Sequential(
            *(nn.BatchNorm2d(inputs), nn.ReLU(), *wide, nn.ReLU()),
            convolution(4 * growth, growth, 3)[0],
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, self.body(x)), 1)


class DenseNet121(nn.Sequential):
    """Huang et al., "Densely connected convolutional networks", 2016."""

    def __init__(self, growth: int = 32) -> None:
        layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        width = 64
        for count in (6, 12, 24, 16):
            if width > 64:
                halved = convolution(width, width // 2, 1)[0]
                layers += [nn.BatchNorm2d(width), nn.ReLU(), halved, nn.AvgPool2d(2)]
                width //= 2
            for _ in range(count):
                layers.append(DenseLayer(width, growth))
                width += growth
        tail = [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers, *tail, nn.Linear(width, 1000))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        squeezed = (width // 4 + 7) // 8 * 8
        self.body = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            *(nn.Conv2d(width, squeezed, 1), nn.ReLU(), nn.Conv2d(squeezed, width, 1), nn.Hardsigmoid()),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.body(x)


class Inverted(nn.Module):
    def __init__(self, inputs: int, row: Sequence[int]) -> None:
        super().__init__()
        size, width, outputs, squeezes, hard, stride = row
        act = nn.Hardswish if hard else nn.ReLU
        expand = [*convolution(inputs, width, 1), act()] if width != inputs else []
        self.body = nn.Sequential(
            *(*expand, *convolution(width, width, size, stride, width), act()),
            *([SqueezeExcite(width)] if squeezes else []),
            *convolution(width, outputs, 1),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV3Large(nn.Sequential):
    """Howard et al., "Searching for MobileNetV3", 2019, table 1."""

    def __init__(self) -> None:
        #: Kernel size, expansion, outputs, squeeze and excite, hard swish, stride.
        table = (
            *((3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1)),
            *((5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1)),
            *((3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1)),
            *((3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1)),
            *((5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1)),
        )
        layers: list[nn.Module] = [*convolution(3, 16, 3, 2), nn.Hardswish()]
        inputs = 16
        for row in table:
            layers.append(Inverted(inputs, row))
            inputs = row[2]
        tail = [*convolution(160, 960, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers, *tail, nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))


class PreNormBlock(nn.Module):
    """A block of ViT and of Whisper's encoder."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.attention, self.feed = Attention(width, heads, False), Feed(width, "none")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class ViT(nn.Module):
    """Dosovitskiy et al., "An image is worth 16x16 words", 2020, ViT-B/16 at 224 pixels."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = nn.Sequential(*(PreNormBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(patches.shape[0], -1, -1), patches), 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class ShiftedAttention(nn.Module):
    """Attention within windows of 7 x 7, which are shifted in every other block, with a bias by position."""

    def __init__(self, width: int, heads: int, side: int, shift: int) -> None:
        super().__init__()
        self.heads, self.side, self.shift = heads, side, shift
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(heads, 49, 49) * 0.02)
        self.register_buffer("mask", _shift_mask(side, shift))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width, count = x.shape[-1], self.side // 7
        x = x.roll((-self.shift, -self.shift), (1, 2)) if self.shift else x
        windows = x.view(count, 7, count, 7, width).transpose(1, 2).reshape(count * count, 49, width)
        query, key, value = (
            part.view(-1, 49, self.heads, width // self.heads).transpose(1, 2)
            for part in self.inner(windows).split(width, dim=2)
        )
        bias = self.bias + cast(torch.Tensor, self.mask)
        joined = F.scaled_dot_product_attention(query, key, value, attn_mask=bias).transpose(1, 2)
        windows = self.outer(joined.reshape(-1, 49, width)).view(count, count, 7, 7, width)
        x = windows.transpose(1, 2).reshape(1, self.side, self.side, width)
        return x.roll((self.shift, self.shift), (1, 2)) if self.shift else x


def _shift_mask(side: int, shift: int) -> torch.Tensor:
    """``[windows, 1, 49, 49]``: -100 between positions that were not neighbors before the shift."""
    count = side // 7
    if not shift:
        return torch.zeros(count * count, 1, 49, 49)
    parts = torch.zeros(side)
    parts[side - 7 : side - shift], parts[side - shift :] = 1, 2
    regions = (3 * parts[:, None] + parts).view(count, 7, count, 7).transpose(1, 2).reshape(-1, 49)
    return (regions[:, None, :, None] != regions[:, None, None]).float() * -100


class SwinBlock(nn.Module):
    def __init__(self, width: int, heads: int, side: int, shift: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed = ShiftedAttention(width, heads, side, shift), Feed(width, "none")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class Merge(nn.Module):
    """Squares of four pixels become one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squares = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduce(self.norm(torch.cat(squares, -1)))


class SwinTiny(nn.Module):
    """Liu et al., "Swin Transformer", 2021, Swin-T at 224 pixels; biases are stored by pair of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 96, 4, 4), nn.LayerNorm(96)
        layers: list[nn.Module] = []
        width, side = 96, 56
        for count, heads in ((2, 3), (2, 6), (6, 12), (2, 24)):
            if layers:
                layers.append(Merge(width))
                width, side = 2 * width, side // 2
            shift = 3 if side > 7 else 0
            layers += [SwinBlock(width, heads, side, shift * (number % 2)) for number in range(count)]
        self.layers = nn.Sequential(*layers)
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers(self.norm(self.patches(x).permute(0, 2, 3, 1)))
        return self.head(self.last(x).mean((1, 2)))
