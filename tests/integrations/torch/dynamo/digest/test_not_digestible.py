"""Graphs, inputs, constants and modes that have no digest, and the reasons that are given."""

from __future__ import annotations

import functools
import os
import struct
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from kcache_grpc.integrations.torch.dynamo.digest.source_digest import (
    NotDigestible,
    source_digest,
)
from tests.integrations.torch.dynamo.digest.canonical import graph_of, reason, sine

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def user_function(x: Tensor) -> Tensor:
    return x * 2


class Half(Tensor):
    """A subclass of tensors."""


def custom_operator() -> Any:
    @torch.library.custom_op("kcache_test::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    return torch.ops.kcache_test.twice.default


class Identity:
    """A callable object."""

    def __call__(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (user_function, "user_function, which is not PyTorch's"),
        (lambda x: x, "lambda"),
        (Identity(), "a callable of type"),
        (struct.pack, "no name denotes"),
        (os.getcwd, "no name denotes"),
        (torch.ones(2).add, "no name denotes"),
        (Half, "no name denotes"),
    ],
)
def test_functions_of_users_have_no_digest(target: Any, message: str) -> None:
    graph = graph_of(torch.sin)
    list(graph.graph.nodes)[1].target = target
    with pytest.raises(NotDigestible, match=message):
        source_digest(graph, [torch.ones(2)], {})


def test_custom_operators_have_no_digest() -> None:
    with pytest.raises(NotDigestible, match="the custom operator kcache_test::twice"):
        source_digest(graph_of(custom_operator()), [torch.ones(2)], {})


def test_replaced_functions_have_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    source_digest(graph, [torch.ones(2)], {})
    monkeypatch.setattr(torch.Tensor, "sin", lambda self: self * 2)
    with pytest.raises(NotDigestible, match="sin of tensors is not PyTorch's"):
        source_digest(graph, [torch.ones(2)], {})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.ones(2).to_sparse(), "sparse"),
        (torch.ones(2).as_subclass(Half), "subclass"),
        (torch.Generator(), "type torch._C.Generator"),
        ("text", "type builtins.str"),
    ],
)
def test_other_inputs_have_no_digest(value: Any, message: str) -> None:
    with pytest.raises(NotDigestible, match=message):
        source_digest(graph_of(torch.sin), [value], {})


@pytest.mark.parametrize("argument", [torch.ones(2), object(), torch.Generator(), {1, 2}, os])
def test_other_constants_have_no_digest(argument: Any) -> None:
    graph = graph_of(torch.sin)
    list(graph.graph.nodes)[1]._args = (argument,)
    with pytest.raises(NotDigestible, match=r"constant of type|callable of type"):
        source_digest(graph, [torch.ones(2)], {})


def test_modes_and_hooks_of_users_have_no_digest() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    graph, inputs = graph_of(torch.sin), [torch.ones(2)]
    contexts = [
        (TorchDispatchMode(), "dispatch mode"),
        (torch.overrides.TorchFunctionMode(), "mode of torch functions"),
        (torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x), "hooks on saved tensors"),
        (torch.autograd.forward_ad.dual_level(), "forward-mode"),
        (torch._functorch.config.patch(joint_custom_pass=user_function), "joint_custom_pass"),
    ]
    for context, message in contexts:
        with context, pytest.raises(NotDigestible, match=message):
            source_digest(graph, inputs, {})


def recompute(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    return CheckpointPolicy.PREFER_RECOMPUTE


def test_selective_checkpointing_has_no_digest() -> None:
    contexts = functools.partial(create_selective_checkpoint_contexts, recompute)

    def function(x: Tensor) -> Any:
        return checkpoint(sine, x, use_reentrant=False, context_fn=contexts)

    assert "selective activation checkpointing" in reason(function, torch.ones(3, requires_grad=True))


def test_sizes_that_depend_on_data_have_no_digest() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        message = reason(lambda x: x.nonzero() * 2, torch.ones(3))
    assert "depends on data" in message


def test_other_graphs_have_no_digest() -> None:
    module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(NotDigestible, match="a call of the module"):
        source_digest(module, [torch.ones(2)], {})
    with pytest.raises(NotDigestible, match="1 placeholders for 2 inputs"):
        source_digest(graph_of(torch.sin), [torch.ones(2), torch.ones(2)], {})
