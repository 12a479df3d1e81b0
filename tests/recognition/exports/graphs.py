"""Which graphs the corpus holds, at which sizes, and which of these sizes may vary under one key."""

from __future__ import annotations

from dataclasses import dataclass

Sizes = dict[str, int]


@dataclass(frozen=True)
class Graph:
    """A graph of the corpus. ``fixed`` sizes are the same throughout; all others are free, from 2 up."""

    name: str
    framework: str
    free: tuple[str, ...]
    fixed: tuple[tuple[str, int], ...]
    tuples: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> list[Sizes]:
        """All sizes at which the corpus holds the graph."""
        return [dict(zip(self.free, values, strict=True)) | dict(self.fixed) for values in self.tuples]


def _graph(
    name: str, framework: str, free: str, fixed: dict[str, int] | None = None, *more: tuple[int, ...]
) -> Graph:
    names = tuple(free.split())
    return Graph(name, framework, names, tuple((fixed or {}).items()), _TUPLES[len(names)] + more)


#: Smallest, distinct primes, all equal, and coincidences with each other and with fixed sizes (2, 3, 4, 8).
_TUPLES: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((2,), (3,), (4,), (5,), (8,), (13,)),
    2: ((2, 2), (2, 3), (3, 2), (5, 7), (8, 8), (4, 2), (2, 8), (11, 4)),
    3: ((2, 2, 2), (2, 3, 5), (3, 2, 2), (5, 7, 3), (8, 8, 8), (4, 2, 8), (2, 8, 3), (11, 4, 6)),
    4: ((2, 2, 2, 2), (2, 3, 5, 7), (3, 2, 2, 5), (5, 7, 3, 2), (8, 8, 8, 8), (4, 2, 8, 3), (2, 8, 4, 6)),
}

GRAPHS: tuple[Graph, ...] = (
    _graph("transformer_block", "jax", "batch time hidden", {"width": 8}),
    _graph("transformer_block_gradient", "jax", "batch time hidden", {"width": 4}),
    _graph("causal_attention", "jax", "batch time", {"width": 8}),
    _graph("gpt_logits", "jax", "batch time", {"width": 12}),
    _graph("rms_norm_graph", "jax", "batch time width"),
    _graph("layer_norm_gradient", "jax", "batch time width"),
    _graph("batch_norm_training", "jax", "batch height breadth width"),
    _graph("conv_block", "jax", "batch", {"height": 4, "width": 3}),
    _graph("depthwise_conv", "jax", "batch", {"height": 4, "width": 3}),
    _graph("gru_cell", "jax", "batch inputs", {"width": 3}),
    _graph("softmax", "jax", "batch time width"),
    _graph("log_softmax", "jax", "batch time width"),
    _graph("cross_entropy", "jax", "batch", {"classes": 5}),
    _graph("mse_gradient", "jax", "batch inputs width"),
    _graph("huber", "jax", "batch width"),
    _graph("gelu_mlp", "jax", "batch time width hidden"),
    _graph("swiglu_mlp", "jax", "batch time width hidden"),
    _graph("adam", "jax", "rows columns"),
    _graph("mean_variance", "jax", "batch time width"),
    _graph("rotary", "jax", "batch time heads", {"width": 6}),
    _graph("multi_head_attention", "torch", "batch time keys", {"width": 8}),
    _graph("layer_norm", "torch", "batch time width"),
    _graph("batch_norm_inference", "torch", "batch width height breadth"),
    _graph("resnet_block", "torch", "batch", {"height": 4, "width": 6}),
    _graph("lstm_cell", "torch", "batch inputs", {"width": 3}),
    _graph("gelu_erf_mlp", "torch", "batch time width hidden"),
    _graph("adamw", "torch", "rows columns"),
    _graph("sgd_momentum", "torch", "rows columns"),
    _graph("mse_loss", "torch", "batch time width"),
    _graph("patch_embedding", "torch", "batch", {"height": 4, "width": 8}),
    _graph("cosine_similarity", "torch", "batch others width"),
    _graph("global_average_pool", "torch", "batch width height breadth"),
    _graph("onnx_mlp", "onnx", "batch"),
    _graph("onnx_convolutions", "onnx", "batch"),
    _graph("onnx_normalizations", "onnx", "batch"),
    _graph("onnx_attention_block", "onnx", "batch time"),
)
