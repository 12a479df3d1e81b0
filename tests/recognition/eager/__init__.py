"""What each graph of the corpus computes, written once more in PyTorch and run eagerly in f64, at any sizes.

Written from the functions that were exported (``exported_jax``, ``exported_onnx``, ``exported_torch``), never
from specs: gradients are autograd's. ``test_eager`` compares each with the program in the corpus, at all its
sizes. Arguments come in the program's order; sizes are read from their shapes.

Sums and means over nothing are as in all three frameworks: 0, and 0/0, which is NaN.
"""

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

#: Arguments that have to be positive: variances, and Adam's second moments.
POSITIVE: dict[str, tuple[int, ...]] = {
    "adam": (3,),
    "adamw": (3,),
    "batch_norm_inference": (4,),
    "onnx_convolutions": (7,),
}

#: Integer arguments, and the values that they take: from the first up to the second, without it.
INTEGERS: dict[str, tuple[int, int]] = {
    "adam": (0, 50),
    "cross_entropy": (0, 5),
    "gpt_logits": (-24, 24),  # counted from the end where negative, in JAX as in PyTorch
}


def evaluate(name: str, arguments: list[Array], dtype: Any = np.float64) -> list[Array]:
    """The results of a graph, floats in f64 or what is asked for."""
    given = [torch.from_numpy(_converted(array, dtype)) for array in arguments]
    return [result.detach().numpy() for result in FUNCTIONS[name](*given)]


def draw(
    name: str, position: int, shape: tuple[int, ...], dtype: Any, generator: np.random.Generator
) -> Array:
    """A value for an argument: of both signs, but for what has to be positive."""
    if np.dtype(dtype).kind in "iu":
        return generator.integers(*INTEGERS[name], shape).astype(dtype)
    if position in POSITIVE.get(name, ()):
        return np.asarray(generator.uniform(0.2, 1.7, shape)).astype(dtype)
    return np.asarray(generator.standard_normal(shape)).astype(dtype)


def _converted(array: Array, dtype: Any) -> Array:
    return np.array(array, dtype if array.dtype.kind == "f" else np.int64)
