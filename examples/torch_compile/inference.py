"""Inference: ``python -m examples.torch_compile.inference``."""

import torch
from torch import nn


def main() -> float:
    """The largest difference from eager mode."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)).eval()
    x = torch.randn(32, 64)
    with torch.no_grad():
        compiled = torch.compile(model, backend="kcache")
        difference = float((compiled(x) - model(x)).abs().max())
    print(f"largest difference from eager mode: {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
