"""PyTorch's ways to compute the cases of ``cases.py``, which kernels are timed beside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True)
class Rivals:
    """``eager`` computes the case (matrix products by cuBLAS); ``special`` is what PyTorch has for this very
    thing: flash attention.
    """

    eager: Function
    special: Function | None = None


def rivals(name: str) -> Rivals:
    """The rivals of a case. Raises ``KeyError`` for a name that ``cases.py`` does not have."""
    import torch

    family = name.partition("/")[0]
    causal = name.endswith("/causal")
    families = {
        "add_relu": Rivals(lambda a, b: (a + b).relu()),
        "softmax": Rivals(lambda a: torch.softmax(a, 1)),
        "rms_norm": Rivals(lambda a: a * ((a * a).mean(1, keepdim=True) + 1e-5).rsqrt()),
        "layer_norm": Rivals(lambda a, g, b: torch.nn.functional.layer_norm(a, a.shape[1:], g, b, 1e-5)),
        "sum": Rivals(lambda a: a.sum()),
        "column_sums": Rivals(lambda a: a.sum(0)),
        "transpose": Rivals(lambda a: a.t().contiguous()),
        "matmul": Rivals(lambda a, b: a @ b),
        "attention": Rivals(
            lambda q, k, v: _attention(q, k, v, causal),
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
        ),
    }
    return families[family]


def _attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """As frameworks export it: scores and softmax in f32, weights in the type of the values."""
    import torch

    scores = (q @ k.transpose(2, 3)).float() * 0.125
    if causal:
        hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1).to(v.dtype) @ v
