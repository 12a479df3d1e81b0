"""PyTorch modules as tests export them, and their text as torch-mlir's importer writes it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


class Mlp(nn.Module):
    """Two layers with ReLU between them."""

    def __init__(self, inner: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(16, inner)
        self.second = nn.Linear(inner, 8)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


def imported(module: nn.Module, *inputs: Any, output_type: str = "raw", **options: Any) -> Any:
    """The module that ``torch_mlir.fx.export_and_import`` makes."""
    from torch_mlir import fx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fx.export_and_import(module, *inputs, output_type=output_type, **options)


def bytecode_of(module: nn.Module, *inputs: Any) -> bytes:
    """The raw module as MLIR bytecode."""
    file = io.BytesIO()
    imported(module, *inputs).operation.write_bytecode(file)
    return file.getvalue()


def text_of(module: nn.Module, *inputs: Any, output_type: str = "raw", **options: Any) -> bytes:
    """Its text."""
    return str(imported(module, *inputs, output_type=output_type, **options)).encode()
