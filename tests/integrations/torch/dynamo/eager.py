"""Compilers that run their graph as it is, and the backends of ``torch.compile`` that the tests use."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from torch._functorch.partitioners import default_partition

from kcache_grpc.integrations.torch.dynamo.aot.aot_record import decode_result, encode_result
from kcache_grpc.integrations.torch.dynamo.aot.capture import compile_with_aot


class Compilers:
    """Compilers that keep the functions of the last compilation, which run the graphs eagerly."""

    def __init__(self) -> None:
        self.forward: Any = None
        self.backward: Any = None

    def compile_forward(self, graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        self.forward = boxed(graph)
        return self.forward

    def compile_backward(self, graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        self.backward = boxed(graph)
        return self.backward


def boxed(graph: Any) -> Callable[[list[Any]], Any]:
    def run(args: list[Any]) -> Any:
        values = list(args)
        args.clear()
        return graph(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def captured(
    graph: Any, inputs: Sequence[Any], compilers: Compilers, reasons: list[str], **options: Any
) -> tuple[Callable[..., Any], Any]:
    """``compile_with_aot`` with compilers that run graphs eagerly."""
    return compile_with_aot(
        graph,
        inputs,
        fw_compiler=compilers.compile_forward,
        bw_compiler=compilers.compile_backward,
        inference_compiler=compilers.compile_forward,
        **{
            "partition_fn": default_partition,
            "decompositions": {},
            "keep_inference_input_mutations": True,
            "report": reasons.append,
            **options,
        },
    )


class RecordingBackend:
    """A backend whose callables are rebuilt from the JSON text of their record, or are those of AOTAutograd.

    ``rebuilt`` selects, at each call, the rebuilt callable or that of the compilation.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.rebuilt = True
        self.records: list[dict[str, Any]] = []
        self.reasons: list[str] = []

    def __call__(self, graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        compilers = Compilers()
        compiled, entry = captured(graph, inputs, compilers, self.reasons, **self.options)
        if entry is None:
            return compiled
        text = json.dumps(encode_result(entry))
        self.records.append(json.loads(text))
        rebuilt = decode_result(json.loads(text)).wrap(compilers.forward, compilers.backward, inputs, graph)

        def call(*args: Any) -> Any:
            return (rebuilt if self.rebuilt else compiled)(*args)

        return call
