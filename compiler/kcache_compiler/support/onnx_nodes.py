"""ONNX models from which rejected nodes are removed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.onnx.proto import Proto, element_name, onnx

_NODE = re.compile(r'node "(.*)"', re.DOTALL)


class OnnxNodes:
    """A model from which nodes are removed.

    Outputs of a removed node become inputs of the model if their types are known; otherwise the nodes that
    use them are removed too.
    """

    def __init__(self, program: bytes) -> None:
        self.source = program
        self.note = ""
        self.operations = 0
        self._unchecked = 0
        self._model: Proto | None = None
        model = onnx().ModelProto()
        try:
            model.ParseFromString(program)
        except Exception:  # noqa: BLE001 - protobuf's DecodeError; the compile reports it
            return
        self._model = model
        self._types: dict[str, Proto] | None = None
        _name_nodes(model)
        self.source = model.SerializeToString()
        nodes = [node for graph in _graphs(model.graph) for node in graph.node]
        self.operations = sum(node.op_type != "Constant" for node in nodes)

    def remove(self, error: UnsupportedOp) -> bool:
        """Remove the node that an error names; False if it names none."""
        model, location = self._model, _NODE.fullmatch(error.location)
        if model is None or location is None:
            return False
        nodes = [(graph, node) for graph in _graphs(model.graph) for node in graph.node]
        match = next((pair for pair in nodes if pair[1].name == location[1]), None)
        if match is None:
            return False
        self._remove_node(*match)
        if not len(model.graph.output):
            self._add_output(model.graph)
        self.source = model.SerializeToString()
        return True

    def _remove_node(self, graph: Proto, node: Proto) -> None:
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
        self._remove_users(graph, lost)

    def _remove_users(self, graph: Proto, lost: set[str]) -> None:
        """Remove the nodes and outputs that use values without a producer."""
        for node in list(graph.node):
            used = set(node.input) | {name for inner in _subgraphs(node) for name in _used_names(inner)}
            if used & lost:
                lost |= set(filter(None, node.output))
                graph.node.remove(node)
                self._unchecked += 1
                self.note = f"{self._unchecked} nodes that use their results were not checked"
        for output in list(graph.output):
            if output.name in lost:
                graph.output.remove(output)

    @staticmethod
    def _add_output(graph: Proto) -> None:
        """Give the model an output: a valid model has one."""
        graph.output.extend(graph.input[:1])


def _graphs(graph: Proto) -> Iterator[Proto]:
    yield graph
    for node in graph.node:
        for inner in _subgraphs(node):
            yield from _graphs(inner)


def _subgraphs(node: Proto) -> list[Proto]:
    """The subgraphs of a control flow operator."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def _used_names(graph: Proto) -> set[str]:
    """The names of all values that are used in a graph."""
    names = {output.name for output in graph.output}
    return names | {name for inner in _graphs(graph) for node in inner.node for name in node.input}


def _name_nodes(model: Proto) -> None:
    """Give each node a unique name, by which errors identify it."""
    seen: set[str] = set()
    for graph in _graphs(model.graph):
        for number, node in enumerate(graph.node):
            if not node.name or node.name in seen:
                node.name = f"{node.op_type} {number}, which makes {', '.join(node.output)}"
            seen.add(node.name)


def _types_of(model: Proto) -> dict[str, Proto]:
    """The types, with rank, of values by name, as far as ONNX's shape inference finds them."""
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
