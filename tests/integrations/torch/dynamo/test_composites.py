"""Definitions of composite functions equal PyTorch's functions, in values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from kcache_grpc.integrations.torch.dynamo.composites import expand_composites


def expanded(function: Any, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """A graph that calls a function with the tensors among its arguments, with composites expanded."""
    graph = torch.fx.Graph()
    names = iter(range(100))

    def placeholder(value: Any) -> Any:
        return graph.placeholder(f"x{next(names)}") if isinstance(value, torch.Tensor) else value

    arguments = [placeholder(value) for value in args]
    keywords = {name: placeholder(value) for name, value in kwargs.items()}
    graph.output(graph.call_function(function, tuple(arguments), keywords))
    module = torch.fx.GraphModule(nn.Module(), graph)
    expand_composites(module)
    [call] = [node for node in module.graph.nodes if node.op == "call_function"]
    assert call.target is not function
    return module


def check(function: Any, *args: Any, results: int | None = None, **kwargs: Any) -> None:
    """Values and gradients; of ``results`` results where PyTorch returns more than is defined."""
    module = expanded(function, *args, **kwargs)

    def run(call: Callable[..., Any]) -> tuple[list[Any], Any]:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        differentiable = [value for value in tensors if value.requires_grad]
        value = call()
        values = [item for item in (value if isinstance(value, tuple) else (value,)) if item is not None]
        values = values[:results]
        torch.manual_seed(1)
        loss = sum((item * torch.randn_like(item)).sum() for item in values if item.is_floating_point())
        gradients = torch.autograd.grad(loss, differentiable) if differentiable else ()  # type: ignore[arg-type]
        return values, gradients

    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    expected = run(lambda: function(*args, **kwargs))
    actual = run(lambda: module(*tensors))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def normal(*sizes: int, grad: bool = True, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(seed + sum(sizes))
    return torch.randn(sizes, generator=generator, dtype=dtype).requires_grad_(grad)


PRODUCT = functional.scaled_dot_product_attention
ENCODER_LAYER = getattr(torch, "_transformer_encoder_layer_fwd")  # noqa: B009 - not among PyTorch's public names


@pytest.mark.parametrize(
    ("mask", "options"),
    [
        (None, {}),
        (None, {"is_causal": True}),
        (None, {"scale": 0.3}),
        (normal(5, 6), {}),
        (normal(2, 1, 5, 6, grad=False) > 0, {}),
        (torch.tensor([[True] * 6, [False] * 6, *[[True, False] * 3] * 3]), {}),
        (torch.zeros(5, 6).masked_fill(torch.ones(5, 6).triu(1) > 0, -math.inf), {"scale": 1.0}),
    ],
    ids=["plain", "causal", "scale", "bias", "boolean", "masked row", "infinite"],
)
def test_attention(mask: Any, options: Any) -> None:
    query, key, value = normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 7)
    check(PRODUCT, query, key, value, attn_mask=mask, **options)


def test_attention_of_grouped_heads() -> None:
    check(PRODUCT, normal(2, 6, 5, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4, seed=1), enable_gqa=True)


def test_attention_with_one_batch_dimension() -> None:
    check(PRODUCT, normal(3, 5, 4), normal(3, 5, 4, seed=1), normal(3, 5, 4, seed=2), is_causal=True)


@pytest.mark.parametrize(
    "options", [{}, {"mode": "sum"}, {"mode": "mean"}, {"mode": "max"}, {"padding_idx": 2}]
)
def test_embedding_bag(options: Any) -> None:
    indices = torch.tensor([0, 2, 2, 5, 1, 2])
    offsets = torch.tensor([0, 2, 2, 4])
    check(functional.embedding_bag, indices, normal(7, 3), offsets, **options)


def test_embedding_bag_of_rows() -> None:
    check(functional.embedding_bag, torch.tensor([[0, 2], [5, 5]]), normal(7, 3), mode="sum")


def test_embedding_bag_with_weights_of_samples() -> None:
    indices, offsets = torch.tensor([0, 2, 5, 1]), torch.tensor([0, 1])
    check(functional.embedding_bag, indices, normal(7, 3), offsets, mode="sum", per_sample_weights=normal(4))


def test_embedding_bag_with_the_last_offset() -> None:
    indices, offsets = torch.tensor([0, 2, 5, 1]), torch.tensor([0, 1, 4])
    check(functional.embedding_bag, indices, normal(7, 3), offsets, include_last_offset=True)


def test_the_operator_of_embedding_bags() -> None:
    indices, offsets = torch.tensor([0, 2, 5, 1]), torch.tensor([0, 1])
    check(torch.embedding_bag, normal(7, 3), indices, offsets, results=1)


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("weights", [True, False])
def test_multi_head_attention(mask: Any, weights: bool) -> None:
    x = normal(5, 2, 8)
    check(
        functional.multi_head_attention_forward,
        *(x, normal(5, 2, 8, seed=1), normal(5, 2, 8, seed=2), 8, 2),
        *(normal(24, 8), normal(24), None, None, False, 0.0, normal(8, 8), normal(8)),
        attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(1) if mask else None,
        need_weights=weights,
    )


@pytest.mark.parametrize("gelu", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_the_encoder_layer(gelu: bool, norm_first: bool) -> None:
    weights = [
        normal(*sizes, grad=False) * 0.5 for sizes in ((8,), (8,), (8,), (8,), (16, 8), (16,), (8, 16), (8,))
    ]
    check(
        ENCODER_LAYER,
        *(normal(2, 5, 8, grad=False), 8, 2, normal(24, 8, grad=False), normal(24, grad=False)),
        *(normal(8, 8, grad=False), normal(8, grad=False), gelu, norm_first, 1e-5, *weights),
    )


def test_the_encoder_layer_with_a_mask_is_pytorchs() -> None:
    weights = [
        normal(*sizes, grad=False) for sizes in ((8,), (8,), (8,), (8,), (16, 8), (16,), (8, 16), (8,))
    ]
    check(
        ENCODER_LAYER,
        *(normal(2, 5, 8, grad=False), 8, 2, normal(24, 8, grad=False), normal(24, grad=False)),
        *(normal(8, 8, grad=False), normal(8, grad=False), True, False, 1e-5, *weights),
        *(torch.ones(5, 5, dtype=torch.bool).triu(1), 0),
    )


def test_other_functions_stay() -> None:
    module = torch.fx.symbolic_trace(lambda x: torch.softmax(x, -1))
    targets = [node.target for node in module.graph.nodes]
    expand_composites(module)
    assert [node.target for node in module.graph.nodes] == targets
