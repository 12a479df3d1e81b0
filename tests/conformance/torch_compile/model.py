"""A model with the calls that exercise it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

#: Calls a module, or what ``torch.compile`` returned for it, and returns its outputs: tensors, nested or not.
Calls = Callable[[Callable[..., Any]], Any]


@dataclass(frozen=True)
class Model:
    """``make`` returns a module and the calls of it; ``trains``: it has gradients that are compared.

    ``package``: a library that it needs beside PyTorch.
    """

    make: Callable[[], tuple[nn.Module, Calls]]
    trains: bool = True
    package: str = ""

    @property
    def missing(self) -> str:
        """Why the model cannot be made here, or nothing."""
        if self.package and importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed"
        return ""


def called_with(*args: Any, **kwargs: Any) -> Calls:
    """One call with these arguments."""
    return lambda function: function(*args, **kwargs)


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in outputs, in order; those of caches, which are no output of their own, excepted."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for element in cast("dict[Any, Any]", value).values():
            yield from tensors_of(element)
    elif isinstance(value, (list, tuple)):
        for element in cast("list[Any]", value):
            yield from tensors_of(element)


def without_dropout(module: nn.Module) -> nn.Module:
    """The module, with a probability of 0 in each dropout, so that f64 draws nothing else."""
    for each in module.modules():
        if isinstance(each, nn.modules.dropout._DropoutNd):
            each.p = 0.0
        for name, value in vars(each).items():
            if "drop" in name and isinstance(value, float):
                setattr(each, name, 0.0)
    return module
