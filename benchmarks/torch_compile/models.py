"""Models at their real size, with random weights, in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

VOCABULARY = 50257


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.inner(x).split(width, dim=2)
        )
        joined = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.outer(joined.transpose(1, 2).reshape(batch, length, width))


class Feed(nn.Sequential):
    def __init__(self, width: int, approximate: str) -> None:
        super().__init__(
            nn.Linear(width, 4 * width), nn.GELU(approximate=approximate), nn.Linear(4 * width, width)
        )


class DecoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed = Attention(width, heads, True), Feed(width, "tanh")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class Gpt2(nn.Module):
    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class EncoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed = Attention(width, heads, False), Feed(width, "none")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x + self.attention(x))
        return self.second(x + self.feed(x))


class Bert(nn.Module):
    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(tokens.shape[1])
        x = self.norm(self.tokens(tokens) + self.positions(positions) + self.kinds.weight[0])
        for block in self.blocks:
            x = block(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.first, self.second = RmsNorm(width), RmsNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.outer = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        normed = self.first(x)
        query = self.query(normed).view(batch, length, self.heads, self.size).transpose(1, 2)
        key = self.key(normed).view(batch, length, self.groups, self.size).transpose(1, 2)
        value = self.value(normed).view(batch, length, self.groups, self.size).transpose(1, 2)
        joined = F.scaled_dot_product_attention(
            rotated(query, cosine, sine), rotated(key, cosine, sine), value, is_causal=True, enable_gqa=True
        )
        x = x + self.outer(joined.transpose(1, 2).reshape(batch, length, width))
        normed = self.second(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


class Llama(nn.Module):
    def __init__(self, width: int = 1024, heads: int = 16, groups: int = 8, layers: int = 8) -> None:
        super().__init__()
        self.tokens = nn.Embedding(32000, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, 2816) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, 32000, bias=False)
        self.size = width // heads

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        frequencies = 10000.0 ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.outer(torch.arange(tokens.shape[1]), frequencies)
        angles = torch.cat((angles, angles), -1)
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))
        return self.head(self.norm(x))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    # With smaller weights deep models compute zero, whatever their input.
    nn.init.kaiming_normal_(layer.weight)
    return [layer, nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *(*convolution(inputs, width, 1), nn.ReLU(), *convolution(width, width, 3, stride), nn.ReLU()),
            *convolution(width, outputs, 1),
        )
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(*convolution(inputs, outputs, 1, stride)) if changes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet50(nn.Sequential):
    def __init__(self) -> None:
        layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        inputs = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for index in range(count):
                layers.append(Bottleneck(inputs, width, stride if index == 0 else 1))
                inputs = 4 * width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class MobileBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, expand: int, size: int, stride: int) -> None:
        super().__init__()
        width, squeezed = inputs * expand, max(1, inputs // 4)
        first = [*convolution(inputs, width, 1), nn.SiLU()] if expand != 1 else []
        self.expand = nn.Sequential(*first, *convolution(width, width, size, stride, width), nn.SiLU())
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            *(nn.Conv2d(width, squeezed, 1), nn.SiLU(), nn.Conv2d(squeezed, width, 1), nn.Sigmoid()),
        )
        self.project = nn.Sequential(*convolution(width, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.expand(x)
        narrow = self.project(wide * self.squeeze(wide))
        return x + narrow if self.residual else narrow


class EfficientNetB0(nn.Sequential):
    def __init__(self) -> None:
        layers: list[nn.Module] = [*convolution(3, 32, 3, 2), nn.SiLU()]
        inputs = 32
        stages = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3))
        stages += ((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))
        for expand, outputs, count, stride, size in stages:
            for index in range(count):
                layers.append(MobileBlock(inputs, outputs, expand, size, stride if index == 0 else 1))
                inputs = outputs
        super().__init__(
            *(*layers, *convolution(inputs, 1280, 1), nn.SiLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)),
        )


def _tokens(vocabulary: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, vocabulary, (1, 128))


def _image() -> torch.Tensor:
    return torch.randn(1, 3, 224, 224)


#: Name -> model and example input.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "gpt2": (Gpt2, _tokens(VOCABULARY)),
    "bert": (Bert, _tokens(30522)),
    "resnet50": (ResNet50, _image),
    "efficientnet": (EfficientNetB0, _image),
    "llama": (Llama, _tokens(32000)),
}
