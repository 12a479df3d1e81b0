"""ONNX models, node by node: what is refused is taken away, and the rest tried."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.onnx.proto import Proto, element_name, onnx

_NODE = re.compile(r'node "(.*)"', re.DOTALL)


class OnnxNodes:
    """A model, and the same without some nodes: what they make becomes an input, where its type is known;
    where it is not, what reads it goes too.
    """

    def __init__(self, program: bytes) -> None:
        self.source = program
        self.note = ""
        self.operations = 0
        self._unseen = 0
        self._model: Proto | None = None
        model = onnx().ModelProto()
        try:
            model.ParseFromString(program)
        except Exception:  # noqa: BLE001 - protobuf's DecodeError; the compile says what is wrong
            return
        self._model = model
        self._types: dict[str, Proto] | None = None
        _name_nodes(model)
        self.source = model.SerializeToString()
        nodes = [node for graph in _graphs(model.graph) for node in graph.node]
        self.operations = sum(node.op_type != "Constant" for node in nodes)

    def take_away(self, error: UnsupportedOp) -> bool:
        """Take the node of an error away; False where it is not known which."""
        model, place = self._model, _NODE.fullmatch(error.location)
        if model is None or place is None:
            return False
        nodes = [(graph, node) for graph in _graphs(model.graph) for node in graph.node]
        chosen = next((each for each in nodes if each[1].name == place[1]), None)
        if chosen is None:
            return False
        self._drop(*chosen)
        if not len(model.graph.output):
            self._keep_something(model.graph)
        self.source = model.SerializeToString()
        return True

    def _drop(self, graph: Proto, node: Proto) -> None:
        assert self._model is not None
        if self._types is None:
            self._types = _types_of(self._model)
        lost: set[str] = set()
        for name in filter(None, node.output):
            if name in self._types:
                self._model.graph.input.append(self._types[name])
            else:
                lost.add(name)
        graph.node.remove(node)
        self._forget(graph, lost)

    def _forget(self, graph: Proto, lost: set[str]) -> None:
        """Remove what reads values that nobody makes any more."""
        for node in list(graph.node):
            read = set(node.input) | {name for inner in _inner(node) for name in _read(inner)}
            if read & lost:
                lost |= set(filter(None, node.output))
                graph.node.remove(node)
                self._unseen += 1
                self.note = f"{self._unseen} nodes that read their results were not looked at"
        for output in list(graph.output):
            if output.name in lost:
                graph.output.remove(output)

    @staticmethod
    def _keep_something(graph: Proto) -> None:
        """A model has a result."""
        graph.output.extend(graph.input[:1])


def _graphs(graph: Proto) -> Iterator[Proto]:
    yield graph
    for node in graph.node:
        for inner in _inner(node):
            yield from _graphs(inner)


def _inner(node: Proto) -> list[Proto]:
    """The graphs of a control operator."""
    return [each.g for each in node.attribute if each.HasField("g")]


def _read(graph: Proto) -> set[str]:
    """Names that are read anywhere in a graph."""
    names = {output.name for output in graph.output}
    return names | {name for each in _graphs(graph) for node in each.node for name in node.input}


def _name_nodes(model: Proto) -> None:
    """Give each node a name of its own, that errors may tell which one they mean."""
    seen: set[str] = set()
    for graph in _graphs(model.graph):
        for number, node in enumerate(graph.node):
            if not node.name or node.name in seen:
                node.name = f"{node.op_type} {number}, which makes {', '.join(node.output)}"
            seen.add(node.name)


def _types_of(model: Proto) -> dict[str, Proto]:
    """Value -> its type with its rank, for those whose types inference finds and inputs have."""
    try:
        inferred = onnx().shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # noqa: BLE001 - inference of another project, over what the checker passed
        inferred = model
    return {
        info.name: info
        for graph in _graphs(inferred.graph)
        for info in (*graph.value_info, *graph.output)
        if info.type.HasField("tensor_type")
        and info.type.tensor_type.HasField("shape")
        and element_name(info.type.tensor_type.elem_type) is not None
    }
