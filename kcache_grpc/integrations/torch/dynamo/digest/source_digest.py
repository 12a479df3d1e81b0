"""The digest of a graph of Dynamo: equal digests prove that AOTAutograd traces the same graph.

The digest is the SHA-256 of a canonical text of the graph, its inputs, the facts about symbolic sizes, and
PyTorch's global state. Names of modules and variables, files, stack traces, addresses and seeds of hashes
are not in it. What the text cannot state raises ``NotDigestible``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.digest.source_inputs import Inputs, Symbols
from kcache_grpc.integrations.torch.dynamo.digest.source_state import state_lines
from kcache_grpc.integrations.torch.dynamo.digest.source_values import (
    NotDigestible,
    function_text,
    method_text,
    value_text,
)

torch: Any = import_module("torch")

__all__ = ["NotDigestible", "canonical_text", "source_digest"]

#: Version of the text.
_VERSION = 1
#: Metadata of nodes that describes where a node is from, or what follows from its arguments.
_IGNORED_META = frozenset(
    ("arg_kwarg_vals", "creation_timestamp", "desc", "example_value", "from_node", "fwd_nn_module_stack")
    + ("fwd_source_fn_stack", "grapharg", "nn_module_stack", "original_aten", "seq_nr", "source_fn_stack")
    + ("stack_trace", "steal_arg", "tensor_dict", "tensor_meta", "torch_fn", "unbacked_bindings", "val")
)
#: Metadata of graphs that Dynamo and ``torch.export`` keep for themselves.
_IGNORED_GRAPH_META = frozenset(
    ("backend_id", "dynamo_compile_id", "dynamo_flat_name_to_original_fqn", "inline_constraints")
    + ("module_call_specs", "treespec_namedtuple_fields")
)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def source_digest(graph_module: Any, example_inputs: Sequence[Any], extra: Mapping[str, str]) -> bytes:
    """The SHA-256 (32 bytes) of ``canonical_text``. Raises ``NotDigestible``."""
    return hashlib.sha256(canonical_text(graph_module, example_inputs, extra).encode()).digest()


def canonical_text(graph_module: Any, example_inputs: Sequence[Any], extra: Mapping[str, str]) -> str:
    """The text of which ``source_digest`` is the digest.

    ``graph_module`` and ``example_inputs`` are what Dynamo passes to a backend; ``extra`` has further facts
    that results depend on, by name. Adds no guard. Raises ``NotDigestible``.
    """
    context = torch._guards.TracingContext.try_get()
    fake_mode = None if context is None else context.fake_mode
    lines = [f"source {_VERSION}", *state_lines()]
    lines += [f"extra {name!r}: {value!r}" for name, value in sorted(extra.items())]
    lines += _Graphs(None if fake_mode is None else fake_mode.shape_env).lines(graph_module, example_inputs)
    return "\n".join(lines)


class _Graphs:
    """Texts of a graph and of the graphs that are its attributes, each written once."""

    def __init__(self, environment: Any) -> None:
        self._symbols = Symbols(environment)
        self._inputs = Inputs(self._symbols)
        self._attributes: dict[int, int] = {}
        self._lines: list[str] = []

    def lines(self, graph_module: Any, example_inputs: Sequence[Any]) -> list[str]:
        if hasattr(graph_module, "saved_tensors_hooks_pack_0"):
            raise NotDigestible("the graph has hooks on saved tensors")
        inputs = list(example_inputs)
        placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        if len(placeholders) != len(inputs):
            raise NotDigestible(f"{len(placeholders)} placeholders for {len(inputs)} inputs")
        for node, value in zip(placeholders, inputs, strict=True):
            text = self._inputs.text(value, node.meta.get("example_value"))
            attributes: Any = node.meta.get("tensor_dict") or {}
            static = attributes.get("_dynamo_static_input_type")
            self._lines.append(f"input {text} {getattr(node.type, '__name__', node.type)} {static!r}")
        self._add_graph(graph_module)
        return [*self._lines, *self._symbols.facts()]

    def _add_graph(self, graph_module: Any) -> None:
        """Append a line for each node of a graph; nodes are numbered, so that their names do not count."""
        graph = graph_module.graph
        _check_graph(graph_module)
        names: dict[Any, str] = {}
        arguments = names.__getitem__
        symbolic = self._symbols.text
        for index, node in enumerate(graph.nodes):
            names[node] = f"%{index}"
            operation = node.op
            if operation == "call_function":
                target = function_text(node.target)
            elif operation == "get_attr":
                self._lines.append(
                    f"%{index} get_attr {self._attribute(graph_module, node.target)}{_meta(node)}"
                )
                continue
            elif operation == "call_method":
                target = method_text(node.target)
            elif operation == "placeholder":
                target = "default" if node.args else ""
            elif operation == "output":
                target = ""
            else:
                raise NotDigestible(f"a call of the module {node.target}")
            text = value_text(node.args, arguments, symbolic)
            if node.kwargs:
                text += value_text(dict(node.kwargs), arguments, symbolic)
            value = node.meta.get("example_value")
            if value.__class__ in _SYMBOLIC:
                text += f" = {symbolic(value)}"
            self._lines.append(f"%{index} {operation} {target} {text}{_meta(node)}")
        self._lines.append("end")

    def _attribute(self, graph_module: Any, path: str) -> str:
        """The number of a constant or of a nested graph, whose text precedes its first use."""
        value = graph_module
        for name in path.split("."):
            value = getattr(value, name)
        known = self._attributes.get(id(value))
        if known is not None:
            return f"@{known}"
        if isinstance(value, torch.fx.GraphModule):
            self._lines.append("graph")
            self._add_graph(value)
        elif isinstance(value, torch.Tensor):
            self._lines.append(f"constant {self._inputs.constant(value)}")
        else:
            kind: Any = value.__class__
            raise NotDigestible(f"an attribute of type {kind.__module__}.{kind.__qualname__}")
        number = self._attributes[id(value)] = len(self._attributes)
        return f"@{number}"


def _check_graph(graph_module: Any) -> None:
    if type(graph_module.graph._codegen) is not torch.fx.graph.CodeGen:
        raise NotDigestible("a graph with nested inputs or outputs")
    if graph_module.meta.get("_checkpoint_context_fn") is not None:
        raise NotDigestible("selective activation checkpointing, whose policy is code")
    unknown = sorted(str(name) for name in graph_module.meta if name not in _IGNORED_GRAPH_META)
    if unknown:
        raise NotDigestible(f"metadata of a graph: {', '.join(unknown)}")


def _meta(node: Any) -> str:
    """The metadata of a node that changes how it is compiled, such as tags of recomputation."""
    meta = node.meta
    if _IGNORED_META.issuperset(meta):
        return ""
    if meta.get("is_wrapped"):
        raise NotDigestible("a function that torch.fx.wrap wraps")
    fields = {name: meta[name] for name in sorted(meta) if name not in _IGNORED_META and meta[name] != {}}
    if not fields:
        return ""
    return f" meta {value_text(fields, _no_node, _no_symbol)}"


def _no_node(node: Any) -> str:
    raise NotDigestible("metadata that refers to nodes")


def _no_symbol(value: Any) -> str:
    raise NotDigestible("metadata with symbolic values")
