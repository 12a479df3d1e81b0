"""A training loop: ``python -m examples.torch_compile.training``."""

import torch
from torch import nn
from torch.nn import functional


def main(steps: int = 20) -> list[float]:
    """The losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 4))
    compiled = torch.compile(model, backend="kcache")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(128, 16)
    target = x[:, :4].argmax(1)
    losses: list[float] = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(compiled(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} at the first step, {losses[-1]:.3f} at the last")
    return losses


if __name__ == "__main__":
    main()
