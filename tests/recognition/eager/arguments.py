"""Values for the arguments of the corpus; needs no PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any

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


def draw(
    name: str, position: int, shape: tuple[int, ...], dtype: Any, generator: np.random.Generator
) -> Array:
    """A value for an argument: of both signs, but for what has to be positive."""
    if np.dtype(dtype).kind in "iu":
        return generator.integers(*INTEGERS[name], shape).astype(dtype)
    if position in POSITIVE.get(name, ()):
        return np.asarray(generator.uniform(0.2, 1.7, shape)).astype(dtype)
    return np.asarray(generator.standard_normal(shape)).astype(dtype)
