"""Takes the weights of large ONNX models out of the program, which stays small, the same for all weights.

Weights become graph inputs behind those of the model, bound to the arrays that the model holds, or that lie
in external files. What decides shapes (axes, counts, scales of a ``Resize``) stays in the program. The
choice depends on names, shapes and types only. Imports no onnx.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kcache_grpc.programs.onnx.protobuf_fields import Field, MalformedMessage, bytes_field, fields, joined
from kcache_grpc.programs.onnx.tensors import (
    ExternalFiles,
    Tensor,
    argument_field,
    inlined,
    read_tensor,
    tensor_array,
)
from kcache_grpc.runtime.bound_kernel import BoundArguments, Late

#: Bytes of weights up to which they stay in the program, and travel with the kernel.
LIFT_BYTES = 1 << 20

#: Tensors outside of the main graph with more bytes are arguments too, where their name is the only one.
_INNER_BYTES = 1024

# Fields of ModelProto, GraphProto, NodeProto, AttributeProto and ValueInfoProto.
_IR_VERSION, _GRAPH = 1, 7
_NODE, _INITIALIZER, _INPUT = 1, 5, 11
_NODE_INPUT, _NODE_OUTPUT, _OP, _ATTRIBUTE, _DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_NAME, _TENSOR, _SUBGRAPH, _SUBGRAPHS = 1, 5, 6, 11
#: Texts for people: they differ from export to export.
_MODEL_TEXTS, _GRAPH_TEXTS, _NODE_TEXTS = frozenset({6, 14}), frozenset({10, 16}), frozenset({6, 9})

#: Before this IR version every initializer had to be an input too; since then such an input is the caller's.
_INITIALIZERS_ALONE = 4

#: Initializers that sizes are read from, though they are floats: operator -> inputs.
_SHAPE_LIKE = {"Resize": (1, 2, 3), "Upsample": (1,), "OneHot": (1,), "Compress": (1,), "Range": (0, 1, 2)}


@dataclass(frozen=True)
class LiftedModel:
    """A serialized ``ModelProto`` and the weights that were taken out of it, if any."""

    body: bytes
    arguments: BoundArguments | None


def lift_weights(body: bytes | memoryview, directory: Path | None) -> LiftedModel:
    """Take the weights out of a serialized model that has more than ``LIFT_BYTES`` of them.

    ``directory`` is where external data lies, if that is known; it is read where weights are used. Raises
    ``InvalidProgram`` for elements that are not there. What is no model comes back as it is.
    """
    try:
        return _Lifter(list(fields(memoryview(body))), directory).run(lambda: bytes(body))
    except MalformedMessage:
        return LiftedModel(bytes(body), None)


def lift_model(model: Any, directory: Path | None = None) -> LiftedModel:
    """Take the weights out of an ``onnx.ModelProto``, which is not serialized as a whole where it is large.

    Raises what ``lift_weights`` raises, and ``ValueError`` where protobuf does.
    """
    top: list[Field] = []
    graph: list[Field] = []
    for name, tag, part in _parts(model):
        if name != "graph":
            top += fields(memoryview(part))
            continue
        for _, _, inner in _parts(model.graph):
            graph += fields(memoryview(inner))
        top.append(Field(tag, 2, memoryview(b""), 0, memoryview(b"")))
    lifter = _Lifter(top, directory, graph)
    return lifter.run(lambda: model.SerializeToString(deterministic=True))


def _parts(message: Any) -> Iterator[tuple[str, int, bytes]]:
    """Yield the fields of a message one by one, serialized; the graph of a model stays empty."""
    for descriptor, value in message.ListFields():
        if descriptor.name == "graph":
            yield descriptor.name, descriptor.number, b""
            continue
        repeated = hasattr(value, "__len__") and not isinstance(value, (str, bytes))
        if repeated and descriptor.message_type is not None:
            elements: Any = value
            for element in elements:
                part = element.SerializeToString(deterministic=True)
                yield descriptor.name, descriptor.number, bytes_field(descriptor.number, part)
            continue
        only = type(message)()
        if descriptor.message_type is not None:
            getattr(only, descriptor.name).CopyFrom(value)
        elif repeated:
            getattr(only, descriptor.name).extend(value)
        else:
            setattr(only, descriptor.name, value)
        yield descriptor.name, descriptor.number, only.SerializeToString(deterministic=True)


class _Node:
    """A serialized ``NodeProto``."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.parts = list(fields(field.payload))
        self.inputs = [_text(part) for part in self.parts if part.tag == _NODE_INPUT]
        self.outputs = [_text(part) for part in self.parts if part.tag == _NODE_OUTPUT]
        self.op = next((_text(part) for part in self.parts if part.tag == _OP), "")
        domain = next((_text(part) for part in self.parts if part.tag == _DOMAIN), "")
        self.standard = domain in ("", "ai.onnx")

    def graphs(self) -> Iterator[memoryview]:
        """The graphs of the node's attributes."""
        for part in self.parts:
            if part.tag == _ATTRIBUTE:
                for inner in fields(part.payload):
                    if inner.tag in (_SUBGRAPH, _SUBGRAPHS):
                        yield inner.payload

    def constant(self) -> Tensor | None:
        """The tensor of a ``Constant``."""
        if self.op != "Constant" or not self.standard or not self.outputs:
            return None
        for part in self.parts:
            if part.tag == _ATTRIBUTE:
                inner = list(fields(part.payload))
                if any(i.tag == _ATTRIBUTE_NAME and _text(i) == "value" for i in inner):
                    return next((read_tensor(i.payload) for i in inner if i.tag == _TENSOR), None)
        return None

    def written(self, graph: Callable[[memoryview], bytes], tensor: Callable[[memoryview], bytes]) -> bytes:
        """The node without texts for people, its graphs and tensors written by the functions."""
        parts: list[bytes | memoryview] = []
        for part in self.parts:
            if part.tag in _NODE_TEXTS:
                continue
            parts.append(_attribute(part, graph, tensor) if part.tag == _ATTRIBUTE else part.raw)
        return bytes_field(_NODE, *parts)


def _attribute(
    field: Field, graph: Callable[[memoryview], bytes], tensor: Callable[[memoryview], bytes]
) -> bytes:
    parts: list[bytes | memoryview] = []
    for part in fields(field.payload):
        if part.tag in (_SUBGRAPH, _SUBGRAPHS):
            parts.append(bytes_field(part.tag, graph(part.payload)))
        elif part.tag == _TENSOR:
            parts.append(bytes_field(part.tag, tensor(part.payload)))
        else:
            parts.append(part.raw)
    return bytes_field(_ATTRIBUTE, *parts)


def _text(field: Field) -> str:
    return str(field.payload, "utf-8", "replace")


class _Lifter:
    """One model: first what it has, then, where that is large, the model without it."""

    def __init__(
        self, model: Sequence[Field], directory: Path | None, graph: Sequence[Field] | None = None
    ) -> None:
        self.model = model
        self.files = None if directory is None else ExternalFiles(directory)
        if graph is None:
            bodies = [field.payload for field in model if field.tag == _GRAPH]
            graph = list(fields(bodies[-1])) if bodies else []
        self.graph = graph
        self.nodes = {id(field): _Node(field) for field in graph if field.tag == _NODE}
        self.version = next((field.number for field in model if field.tag == _IR_VERSION), 0)
        self.lifted: dict[str, Tensor] = {}
        self.external = False

    def run(self, body: Callable[[], bytes]) -> LiftedModel:
        """Return the model as it is where it has few weights and no external data."""
        declared = {_name(field.payload) for field in self.graph if field.tag == _INPUT}
        initialized = declared if self.version >= _INITIALIZERS_ALONE else set[str]()
        tensors = self._found()
        weights = {name: tensor for name, tensor in tensors.items() if name not in initialized}
        total = sum(tensor.nbytes for tensor in weights.values())
        if total <= LIFT_BYTES and (self.files is None or not self.external):
            return LiftedModel(body(), None)
        if self.files is None:
            weights = {name: tensor for name, tensor in weights.items() if not tensor.external}
        self.lifted = weights if total > LIFT_BYTES else {}
        inputs = [
            _name(field.payload)
            for field in self.graph
            if field.tag == _INPUT and _name(field.payload) not in self.lifted
        ]
        if self.version < _INITIALIZERS_ALONE:
            initializers = {
                read_tensor(field.payload).name for field in self.graph if field.tag == _INITIALIZER
            }
            inputs = [name for name in inputs if name not in initializers]
        arrays = tuple(self._value(tensor) for tensor in self.lifted.values())
        rewritten = self._model(initialized)
        if not self.lifted:
            return LiftedModel(rewritten, None)
        return LiftedModel(rewritten, BoundArguments((*inputs, *self.lifted), arrays))

    def _value(self, tensor: Tensor) -> Any:
        """An array over the model's or the file's bytes; elements that are packed wait for the first call."""
        if tensor.packed:
            return Late(partial(tensor_array, tensor, self.files))
        return tensor_array(tensor, self.files)

    # -- what the model has

    def _found(self) -> dict[str, Tensor]:
        """Weights by name, in the order of the arguments: initializers, then constants, then inner ones."""
        shapes = set[str]()
        uses = Counter[str]()
        inner: dict[str, Tensor] = {}
        for node in self._all_nodes(inner):
            uses.update(node.outputs)
            for index in _SHAPE_LIKE.get(node.op, ()):
                shapes.update(node.inputs[index : index + 1])
        tensors: dict[str, Tensor] = {}
        for field in self.graph:
            if field.tag == _INITIALIZER:
                self._note(tensors, read_tensor(field.payload), "")
                uses[read_tensor(field.payload).name] += 1
            elif field.tag == _INPUT and self.version >= _INITIALIZERS_ALONE:
                uses[_name(field.payload)] += 1
        for node in self.nodes.values():
            if (tensor := node.constant()) is not None:
                self._note(tensors, tensor, node.outputs[0])
        for name, tensor in inner.items():
            if uses[name] <= 1 and tensor.nbytes > _INNER_BYTES:
                tensors.setdefault(name, tensor)
        return {name: tensor for name, tensor in tensors.items() if tensor.is_weight and name not in shapes}

    def _note(self, tensors: dict[str, Tensor], tensor: Tensor, name: str) -> None:
        self.external = self.external or tensor.external
        tensors[name or tensor.name] = tensor

    def _all_nodes(self, inner: dict[str, Tensor]) -> Iterator[_Node]:
        """Yield the nodes of all graphs; note the tensors inside others, by names that occur once."""
        pending: list[tuple[Iterable[_Node], bool]] = [(self.nodes.values(), False)]
        taken = set[str]()
        while pending:
            nodes, nested = pending.pop()
            for node in nodes:
                yield node
                tensor = node.constant() if nested else None
                if tensor is not None:
                    self._inner(inner, taken, tensor, node.outputs[0])
                for body in node.graphs():
                    parts = list(fields(body))
                    for part in parts:
                        if part.tag == _INITIALIZER:
                            tensor = read_tensor(part.payload)
                            self._inner(inner, taken, tensor, tensor.name)
                        elif part.tag == _INPUT:
                            taken.add(_name(part.payload))
                            inner.pop(_name(part.payload), None)
                    pending.append(([_Node(part) for part in parts if part.tag == _NODE], True))

    def _inner(self, inner: dict[str, Tensor], taken: set[str], tensor: Tensor, name: str) -> None:
        self.external = self.external or tensor.external
        if name in taken:
            inner.pop(name, None)
        else:
            taken.add(name)
            inner[name] = tensor

    # -- the model without them

    def _model(self, inputs: set[str]) -> bytes:
        parts: list[bytes | memoryview] = []
        for field in self.model:
            if field.tag == _GRAPH:
                parts.append(bytes_field(_GRAPH, self._main(inputs)))
            elif field.tag not in _MODEL_TEXTS:
                parts.append(field.raw)
        return joined(parts)

    def _main(self, inputs: set[str]) -> bytes:
        """The main graph: its own inputs, then the lifted ones; initializers that callers give are gone."""
        parts: list[bytes | memoryview] = []
        arguments = [argument_field(_INPUT, name, tensor) for name, tensor in self.lifted.items()]
        for field in self.graph:
            if field.tag == _INITIALIZER:
                tensor = read_tensor(field.payload)
                if tensor.name not in inputs and tensor.name not in self.lifted:
                    parts.append(bytes_field(_INITIALIZER, self._tensor(field.payload)))
            elif field.tag == _INPUT:
                if _name(field.payload) not in self.lifted:
                    parts.append(field.raw)
            elif field.tag == _NODE:
                parts += self._node(self.nodes[id(field)])
            elif field.tag not in _GRAPH_TEXTS:
                parts.append(field.raw)
        return joined([*parts, *arguments])

    def _node(self, node: _Node) -> list[bytes]:
        if node.outputs and node.outputs[0] in self.lifted and node.constant() is not None:
            return []
        return [node.written(self._subgraph, self._tensor)]

    def _subgraph(self, body: memoryview) -> bytes:
        parts: list[bytes | memoryview] = []
        for field in fields(body):
            if field.tag == _NODE:
                parts += self._node(_Node(field))
            elif field.tag == _INITIALIZER:
                if read_tensor(field.payload).name not in self.lifted:
                    parts.append(bytes_field(_INITIALIZER, self._tensor(field.payload)))
            else:
                parts.append(field.raw)
        return joined(parts)

    def _tensor(self, body: memoryview) -> bytes:
        """A tensor that stays: external elements move into the model, where it is known where they are."""
        tensor = read_tensor(body)
        if not tensor.external or self.files is None:
            return bytes(body)
        return inlined(tensor, self.files.read(tensor))


def _name(body: memoryview) -> str:
    """The name of a ``ValueInfoProto``."""
    return next((_text(field) for field in fields(body) if field.tag == 1), "")
