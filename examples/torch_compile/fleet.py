"""Workers that share a server: ``kcache serve`` in one shell, in others

    KCACHE_ADDR=127.0.0.1:7420 python -m examples.torch_compile.fleet

The first worker compiles; each later one starts from the record of its source graph and the stored kernel.
"""

import time

import torch
from torch import nn

from kcache_grpc.torch import decisions


def main() -> str:
    """Where the graph came from: "compiled" or "warm"."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    begin = time.perf_counter()
    with torch.no_grad():
        torch.compile(model, backend="kcache")(torch.randn(2, 16, 64))
    origin = decisions()[-1].origin
    print(f"{time.perf_counter() - begin:.2f} s to the first result ({origin})")
    return origin


if __name__ == "__main__":
    main()
