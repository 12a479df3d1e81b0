"""One kernel for all batch sizes: ``python -m examples.torch_compile.dynamic_batch``."""

import torch
from torch import nn


def main() -> dict[int, float]:
    """Batch size -> largest difference from eager mode."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10)).eval()
    compiled = torch.compile(model, backend="kcache")
    differences: dict[int, float] = {}
    with torch.no_grad():
        for batch in (4, 7, 12):
            x = torch.randn(batch, 3, 8, 8)
            torch._dynamo.mark_dynamic(x, 0)
            differences[batch] = float((compiled(x) - model(x)).abs().max())
    print(f"batch sizes {', '.join(map(str, differences))} by one kernel")
    return differences


if __name__ == "__main__":
    main()
