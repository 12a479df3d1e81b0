"""Canonical texts of the graphs that Dynamo traces, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kcache_grpc.integrations.torch.dynamo.digest.source_digest import (
    NotDigestible,
    canonical_text,
    source_digest,
)


class Texts:
    """A backend that keeps the canonical text of each graph, or why there is none, and runs it eagerly."""

    def __init__(self, **extra: str) -> None:
        self.extra = extra
        self.texts: list[str] = []
        self.reasons: list[str] = []
        self.seconds: list[float] = []

    def __call__(self, graph: Any, inputs: Sequence[Any]) -> Any:
        begin = time.perf_counter()
        try:
            self.texts.append(canonical_text(graph, inputs, self.extra))
            self.seconds.append(time.perf_counter() - begin)
            digest = source_digest(graph, inputs, self.extra)
            assert len(digest) == 32
            assert digest == source_digest(graph, inputs, self.extra)
        except NotDigestible as error:
            self.reasons.append(error.reason)
        return graph.forward


def texts(function: Callable[..., Any], *inputs: Any, dynamic: bool | None = False, **extra: str) -> Texts:
    torch._dynamo.reset()
    backend = Texts(**extra)
    torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)(*inputs)
    return backend


def text(function: Callable[..., Any], *inputs: Any, dynamic: bool | None = False, **extra: str) -> str:
    backend = texts(function, *inputs, dynamic=dynamic, **extra)
    assert not backend.reasons
    return backend.texts[-1]


def reason(function: Callable[..., Any], *inputs: Any, dynamic: bool | None = False) -> str:
    backend = texts(function, *inputs, dynamic=dynamic)
    assert not backend.texts
    return backend.reasons[0]


def sine(x: Tensor) -> Tensor:
    return x.sin()


def graph_of(target: Any, *arguments: Any) -> Any:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(target, (x, *arguments)),))
    return torch.fx.GraphModule(nn.Module(), graph)
