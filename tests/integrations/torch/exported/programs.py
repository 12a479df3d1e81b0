"""Modules that tests export, load and package."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Counting(torch.nn.Module):
    """Nested arguments, a keyword, constants, a buffer and an input that are updated, a size as a result."""

    total: Tensor
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("shift", torch.ones(4), persistent=False)
        self.constant = torch.full((4,), 0.5)

    def forward(self, x: Tensor, scales: dict[str, Tensor], *, extra: Tensor) -> Any:
        self.total.add_(x.sum(0))
        scales["a"].mul_(2)
        hidden = torch.relu(self.linear(x) + self.shift + self.constant)
        return {"y": hidden * scales["a"], "total": self.total, "rows": x.shape[0]}, [extra]


def counting(seed: int = 0) -> Counting:
    torch.manual_seed(seed)
    return Counting().eval().requires_grad_(False)


def counting_call(rows: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """New arguments of a call with so many rows."""
    generator = torch.Generator().manual_seed(rows)
    x, scale = torch.randn(rows, 4, generator=generator), torch.randn(4, generator=generator)
    return (x, {"a": scale}), {"extra": torch.ones(3)}


def export_counting(module: Counting) -> torch.export.ExportedProgram:
    """Rows are dynamic, 2 to 64."""
    args, kwargs = counting_call(6)
    rows = torch.export.Dim("rows", min=2, max=64)
    return torch.export.export(
        module, args, kwargs, dynamic_shapes={"x": {0: rows}, "scales": {"a": None}, "extra": None}
    )
