"""A function and its gradients, by autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def value_and_gradients(function: Callable[..., Tensor], *arguments: Tensor) -> tuple[Tensor, ...]:
    """The value, and the gradients of its sum."""
    variables = [argument.clone().requires_grad_() for argument in arguments]
    value = function(*variables)
    return value, *torch.autograd.grad(value.sum(), variables)
