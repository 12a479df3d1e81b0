"""A backend of ``torch.compile`` that keeps what AOTAutograd traced, and how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from kcache_grpc.integrations.torch.dynamo.aot import capture
from kcache_grpc.integrations.torch.dynamo.aot.aot_record import encode_result
from kcache_grpc.integrations.torch.dynamo.aot.single_trace import NotFunctional
from kcache_grpc.integrations.torch.dynamo.trace import decompositions
from tests.integrations.torch.dynamo.eager import Compilers, captured


class Backend:
    """A backend that keeps the code and the record of each graph, and whether it was traced once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, once: bool = True) -> None:
        self.graphs: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.values: list[list[Any]] = []
        self.once: list[bool] = []
        trace_once = capture._trace_once  # pyright: ignore[reportPrivateUsage]

        def spied(*args: Any) -> tuple[Any, Any]:
            if not once:
                raise NotFunctional("a test")
            result = trace_once(*args)
            self.once[-1] = True
            return result

        monkeypatch.setattr(capture, "_trace_once", spied)

    def __call__(self, graph: Any, inputs: Sequence[Any]) -> Any:
        self.once.append(False)
        compilers = Compilers()
        compile_forward = compilers.compile_forward

        def compile(traced: Any, examples: Sequence[Any]) -> Callable[..., Any]:
            traced.recompile()
            self.graphs.append(traced.code)
            self.values.append([_facts(node) for node in traced.graph.nodes])
            return compile_forward(traced, examples)

        compilers.compile_forward = compile  # type: ignore[method-assign]
        compiled, entry = captured(graph, inputs, compilers, [], decompositions=decompositions())
        self.records.append({} if entry is None else encode_result(entry))
        return compiled


def _facts(node: torch.fx.Node) -> tuple[Any, ...]:
    """The module that a node comes from, and the sizes, strides and types of its values."""
    values = [
        (tuple(value.shape), value.stride(), value.dtype)
        for value in torch.utils._pytree.tree_leaves(node.meta.get("val"))
        if isinstance(value, Tensor)
    ]
    return node.name, str(node.meta.get("nn_module_stack")), values
