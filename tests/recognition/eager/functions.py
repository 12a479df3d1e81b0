"""Every graph of the corpus as a function of PyTorch, evaluated eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.recognition.eager import attention, convolutions, losses, normalizations, recurrent

Array = Any
Function = Callable[..., tuple[torch.Tensor, ...]]

_MODULES = (attention, convolutions, losses, normalizations, recurrent)
FUNCTIONS: dict[str, Function] = {
    name: function for module in _MODULES for name, function in module.GRAPHS.items()
}


def evaluate(name: str, arguments: list[Array], dtype: Any = np.float64) -> list[Array]:
    """The results of a graph; floats in f64, or in ``dtype``."""
    tensors = [torch.from_numpy(_converted(array, dtype)) for array in arguments]
    return [result.detach().numpy() for result in FUNCTIONS[name](*tensors)]


def _converted(array: Array, dtype: Any) -> Array:
    return np.array(array, dtype if array.dtype.kind == "f" else np.int64)
