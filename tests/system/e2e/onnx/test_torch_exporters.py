"""Models as PyTorch's two exporters write them: right, for one size and for open ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kcache_grpc as kcache

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

nn, functional = torch.nn, torch.nn.functional


class Convolutions(nn.Module):
    """Strided and grouped convolutions, batch norm, pools."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8)
        self.second, self.last = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        x = functional.max_pool2d(functional.relu(self.norm(self.first(x))), 2)
        x = functional.adaptive_avg_pool2d(functional.silu(self.second(x)), 1).flatten(1)
        return functional.log_softmax(self.last(x), -1)


class Decoder(nn.Module):
    """Token and position embeddings, causal attention by the framework's own function."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.norm = nn.Embedding(50, 32), nn.Embedding(64, 32), nn.LayerNorm(32)
        self.qkv, self.out, self.head = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 50)

    def forward(self, tokens: Any) -> Any:
        batch, length = tokens.shape
        x = self.tokens(tokens) + self.places(torch.arange(length))
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, 4, 8).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(self.norm(x + self.out(y.transpose(1, 2).reshape(batch, length, 32))))


MODELS = {
    "convolutions": (Convolutions, lambda n: torch.randn(n, 3, 16, 16), {0: "N"}),
    "decoder": (Decoder, lambda n: torch.randint(0, 50, (n, 4 + n)), {0: "B", 1: "T"}),
}


def exported(module: Any, x: Any, path: Path, dynamo: bool, names: dict[int, str] | None) -> onnx.ModelProto:
    if dynamo:
        dims = {axis: torch.export.Dim(name, min=2, max=60) for axis, name in (names or {}).items()}
        shapes = (dims,) if names else None
        return torch.onnx.export(module, (x,), dynamo=True, dynamic_shapes=shapes, verbose=False).model_proto
    axes = {"x": names} if names else None
    torch.onnx.export(module, (x,), path, dynamo=False, input_names=["x"], dynamic_axes=axes)
    return onnx.load(path)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kcache.Client]:
    home = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home))
        with kcache.Client(timeout=120) as embedded:
            yield embedded


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "script"])
@pytest.mark.parametrize("name", MODELS)
def test_kernels_compute_what_pytorch_does(
    client: kcache.Client, tmp_path: Path, name: str, dynamo: bool
) -> None:
    make, inputs, names = MODELS[name]
    module = make().eval()
    fixed = client.compile(exported(module, inputs(2), tmp_path / "fixed.onnx", dynamo, None))
    opened = client.compile(exported(module, inputs(2), tmp_path / "open.onnx", dynamo, names))
    for count, kernel in ((2, fixed), (2, opened), (5, opened)):
        x = inputs(count)
        (got,) = kernel(x.numpy())
        np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-5, atol=1e-5)
