"""Definitions of composite functions compute what PyTorch's own do."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from kcache_grpc.integrations.torch.dynamo.composites import expand_composites


def _layer(norm_first: bool) -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first, activation="gelu")
    return layer.eval()


_PADDING = torch.tensor([[False] * 5, [False, False, True, True, True]])
_CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    ("mask", "padding"),
    [
        (None, None),
        (None, _PADDING),
        (_CAUSAL, None),
        (_CAUSAL, _PADDING),
        (None, torch.ones(2, 5, dtype=torch.bool)),
    ],
    ids=["none", "padding", "causal", "both", "all"],
)
def test_encoder_layer(norm_first: bool, mask: torch.Tensor | None, padding: torch.Tensor | None) -> None:
    layer, graphs = _layer(norm_first), list[torch.fx.GraphModule]()

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        expand_composites(graph)
        graphs.append(graph)
        return graph

    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        torch.compiler.reset()
        actual = torch.compile(layer, backend=backend)(x, mask, padding)
        torch.testing.assert_close(actual, layer(x, mask, padding), equal_nan=True)
    names = [str(node.target) for graph in graphs for node in graph.graph.nodes if node.op == "call_function"]
    assert any("encoder_layer" in name for name in names)
    assert not any("torch._transformer_encoder_layer_fwd" in name for name in names)
