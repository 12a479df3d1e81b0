"""ATen graphs, and their text as the writer and as torch-mlir's importer write it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kcache_compiler import canonicalize
from kcache_compiler.errors import UnsupportedOp
from kcache_grpc.programs.torch.decompositions.table import decompositions
from kcache_grpc.programs.torch.graph_text.program import (
    Island,
    prepare_graph,
    unsupported_reason,
    write_program,
)

Order = Sequence[int] | None


def graph_of(function: Callable[..., Any], *inputs: Any) -> Any:
    """The decomposed graph of a function of tensors, as the writer takes it."""

    def results(*values: Any) -> tuple[Any, ...]:
        value = function(*values)
        return tuple(value) if isinstance(value, (tuple, list)) else (value,)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make_fx(results, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
        if any(map(_is_mutable, module.graph.nodes)):
            module = make_fx(torch.func.functionalize(module), tracing_mode="fake")(*inputs)
    module.graph.eliminate_dead_code()
    prepare_graph(module.graph)
    return module.graph


def _is_mutable(node: Any) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def island_of(graph: Any) -> Island:
    """All of a graph: its tensors and what computes them."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    calls = [node for node in graph.nodes if node.op == "call_function" and is_written(node)]
    output = next(node for node in graph.nodes if node.op == "output")
    return Island(calls, placeholders, [node for node in output.args[0] if node is not None])


def is_written(node: Any) -> bool:
    """Whether a node computes tensors, not sizes or assertions."""
    value = node.meta.get("val")
    return isinstance(value, (torch.Tensor, tuple, list))


def unsupported(graph: Any) -> dict[str, str]:
    """Operator -> reason, of the operators that cannot be part of a program."""
    reasons: dict[str, str] = {}
    for node in island_of(graph).nodes:
        if isinstance(node.target, torch._ops.OpOverload) and (reason := unsupported_reason(node)):
            reasons[str(node.target)] = reason
    return reasons


def imported(graph: Any) -> bytes:
    """The text of torch-mlir's importer."""
    from torch_mlir import ir
    from torch_mlir.dialects import torch as dialect
    from torch_mlir.extras.fx_importer import FxImporter

    context = ir.Context()
    context.allow_unregistered_dialects = True
    dialect.register_dialect(context)
    importer = FxImporter(context=context)
    importer.import_stateless_graph(copy.deepcopy(graph), func_name="main")
    return str(importer.module).encode()


def written(graph: Any, samples: Sequence[Mapping[str, int]] = (), **orders: Sequence[Order]) -> bytes:
    """The text of the writer."""
    return write_program(island_of(graph), samples, **orders)


def spec(text: bytes) -> tuple[str, Any] | str:
    """The canonical spec and the dtypes and shapes of arguments, or the operation that is unsupported."""
    try:
        canonical = canonicalize(text, "torch")
    except UnsupportedOp as error:
        return f"unsupported: {error.op}"
    return canonical.spec_text, canonical.arg_spec
