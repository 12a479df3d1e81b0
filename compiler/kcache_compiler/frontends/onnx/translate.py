"""Translates an ONNX graph to StableHLO, node by node: names, functions, attributes, inner graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.onnx.builder import Builder
from kcache_compiler.frontends.onnx.constant_folding import fold
from kcache_compiler.frontends.onnx.control_flow import CONTROL_FLOW
from kcache_compiler.frontends.onnx.data_dependent import legalize_data_dependent, reject_data_dependent
from kcache_compiler.frontends.onnx.emitter import Value, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode
from kcache_compiler.frontends.onnx.ops import LEGALIZATIONS
from kcache_compiler.frontends.onnx.proto import Proto, data_type, element_name, onnx, tensor_array

Names = dict[str, Value]

#: Exceptions of arithmetic on attributes that do not fit the operator.
_MISMATCH_ERRORS = (ValueError, TypeError, IndexError, KeyError, ArithmeticError)


class Scope:
    """Values by name in a graph or function body; inner graphs see the values of outer ones."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        attributes: Mapping[str, Proto],
        outer: Scope | None = None,
        depth: int = 0,
    ) -> None:
        self.opsets = opsets
        #: Attributes of the call, to which those of the body may refer.
        self.attributes = attributes
        self.outer = outer
        self.depth = depth
        self.values: Names = {}

    def find(self, name: str) -> Value | None:
        """Return the value of a name, None if it is undefined."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None


class Translator:
    """Emits the nodes of one model."""

    def __init__(self, build: Builder, limits: Limits, functions: Sequence[Proto]) -> None:
        self.b = build
        self.limits = limits
        self._functions = {(f.domain, f.name, f.overload): f for f in functions}
        self._nodes = 0

    def graph(self, graph: Proto, scope: Scope) -> list[Value]:
        """Translate the nodes of a graph whose inputs are in ``scope``; return its outputs."""
        for node in graph.node:
            self._node(node, scope)
        results = [self._output(output.name, scope) for output in graph.output]
        for output, value in zip(graph.output, results, strict=True):
            declared = element_name(output.type.tensor_type.elem_type)
            if declared is not None and declared != value.element:
                raise InvalidProgram(
                    f"output {output.name!r} is declared as {declared}, but computed as {value.element}"
                )
        return results

    def subgraph(self, graph: Proto, outer: Scope, inputs: Sequence[Value]) -> list[Value]:
        """Translate the body of a control flow operator; return its outputs."""
        check("nesting of graphs", outer.depth + 1, self.limits.region_depth)
        scope = Scope(outer.opsets, outer.attributes, outer, outer.depth + 1)
        for tensor in graph.initializer:
            scope.values[tensor.name] = constant_value(tensor_array(tensor, f"initializer {tensor.name!r}"))
        if len(graph.input) != len(inputs):
            raise InvalidProgram(
                f"the graph {graph.name!r} takes {len(graph.input)} inputs, not {len(inputs)}"
            )
        for parameter, value in zip(graph.input, inputs, strict=True):
            scope.values[parameter.name] = value
        results = self.graph(graph, scope)
        if any(value.data_dependent_dims for value in results):
            reason = "a result of its graph has a data-dependent size"
            raise UnsupportedOp(f"onnx.{graph.name or 'GraphProto'}", reason)
        return results

    def _node(self, node: Proto, scope: Scope) -> None:
        self._nodes += 1
        check("number of nodes", self._nodes, self.limits.operations)
        if node.op_type == "Constant" and all(name in scope.values for name in node.output):
            return  # bound as a weight
        with self.b.at(node.name or self.b.location):
            try:
                results = self._results(node, scope)
            except _MISMATCH_ERRORS as error:
                raise InvalidProgram(
                    f"{node.op_type} at {_describe(node)}: its inputs or attributes do not match ({error})"
                ) from None
        if len(results) < sum(1 for name in node.output if name):
            missing = [name for name in node.output[len(results) :] if name]
            self._reject_missing_outputs(node, missing)
        for name, value in zip(node.output, results, strict=False):
            if name and value is not None:
                scope.values[name] = value

    @staticmethod
    def _reject_missing_outputs(node: Proto, names: Sequence[str]) -> None:
        raise UnsupportedOp(
            f"onnx.{node.op_type}", f"its outputs {', '.join(names)} are not supported", _describe(node)
        )

    def _results(self, node: Proto, scope: Scope) -> Sequence[Value | None]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        inputs = [self._input(node, name, scope) for name in node.input]
        attributes = self._attributes(node, scope)
        function = self._functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._call(function, inputs, attributes, scope, function.attribute_proto)
        if domain:
            raise UnsupportedOp(
                f"{domain}.{node.op_type}",
                f"custom operators are not supported (domain {domain!r}): add a function of this name to "
                "the model, or replace the node by operators of ONNX's own domain",
                _describe(node),
            )
        return self._standard_operator(node, scope, inputs, attributes)

    def _standard_operator(
        self, node: Proto, scope: Scope, inputs: list[Value | None], attributes: dict[str, Proto]
    ) -> Sequence[Value | None]:
        """Translate a node of ONNX's own domain, by its legalization or its function body.

        Raises ``UnsupportedOp`` if it has neither.
        """
        op, opset = node.op_type, scope.opsets.get("", 0)
        schema = _schema(node, opset)
        values = {name: onnx().helper.get_attribute_value(a) for name, a in attributes.items()}
        onnx_node = OnnxNode(self.b, node.name, op, schema.since_version, inputs, values, list(node.output))
        is_data_dependent = any(value is not None and value.data_dependent_dims for value in inputs)
        if op in CONTROL_FLOW and not is_data_dependent:
            return CONTROL_FLOW[op](self, onnx_node, scope)
        entry = LEGALIZATIONS.get(op)
        if is_data_dependent:
            if entry is None or schema.since_version > entry[0]:
                reject_data_dependent(onnx_node)
            return legalize_data_dependent(onnx_node, entry[1])
        if entry is not None and schema.since_version <= entry[0]:
            outputs = entry[1](onnx_node)
            if outputs is not None:
                results: list[Value | None] = [outputs] if isinstance(outputs, Value) else list(outputs)
                return fold(onnx_node, results, attributes, opset)
        body = _function_body(schema, node, opset, inputs, attributes)
        if body is None:
            since = f"as of opset {schema.since_version} " if entry else ""
            onnx_node.unsupported(f"the operator {since}has no legalization")
        return self._call(body, inputs, attributes, scope, (), _defaults(schema))

    def _input(self, node: Proto, name: str, scope: Scope) -> Value | None:
        if not name:
            return None
        value = scope.find(name)
        if value is None:
            raise InvalidProgram(
                f"{node.op_type} at {_describe(node)} reads {name!r}, which no earlier node defines"
            )
        return value

    @staticmethod
    def _output(name: str, scope: Scope) -> Value:
        value = scope.find(name)
        if value is None:
            raise InvalidProgram(f"the output {name!r} is not defined by any node")
        return value

    @staticmethod
    def _attributes(node: Proto, scope: Scope) -> dict[str, Proto]:
        attributes: dict[str, Proto] = {}
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                attributes[attribute.name] = attribute
            elif attribute.ref_attr_name in scope.attributes:
                bound = onnx().AttributeProto()
                bound.CopyFrom(scope.attributes[attribute.ref_attr_name])
                bound.name = attribute.name
                attributes[attribute.name] = bound
        return attributes

    def _call(
        self,
        function: Proto,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Proto],
        outer: Scope,
        defaults: Sequence[Proto],
        extra_defaults: Mapping[str, Proto] | None = None,
    ) -> list[Value | None]:
        """Inline a function of the model, or the function body of an operator."""
        check("depth of functions", outer.depth + 1, min(self.limits.call_depth, self.limits.region_depth))
        opsets = {**outer.opsets, **{o.domain: o.version for o in function.opset_import}}
        bound = {**(extra_defaults or {}), **{a.name: a for a in defaults}, **attributes}
        scope = Scope(opsets, bound, None, outer.depth + 1)
        for name, value in zip(function.input, inputs, strict=False):
            if value is not None:
                scope.values[name] = value
        absent = set(function.input) - set(scope.values)
        for node in function.node:
            if absent.intersection(node.input):
                pruned = onnx().NodeProto()
                pruned.CopyFrom(node)
                del pruned.input[:]
                pruned.input.extend("" if name in absent else name for name in node.input)
                node = pruned
            self._node(node, scope)
        return [scope.find(name) for name in function.output]


def _schema(node: Proto, opset: int) -> Any:
    try:
        return onnx().defs.get_schema(node.op_type, opset, "")
    except onnx().defs.SchemaError:
        raise InvalidProgram(
            f"{node.op_type} at {_describe(node)} is not an operator of opset {opset} of ONNX's own domain"
        ) from None


def _function_body(
    schema: Any, node: Proto, opset: int, inputs: Sequence[Value | None], attributes: Mapping[str, Proto]
) -> Proto | None:
    """Return the body that the standard defines for an operator, in the newest version up to ``opset``."""
    dependent_version = max(
        (v for v in schema.context_dependent_function_opset_versions if v <= opset), default=0
    )
    version = max((v for v in schema.function_opset_versions if v <= opset), default=0)
    body = onnx().FunctionProto()
    if dependent_version > version:
        bound_node = onnx().NodeProto()
        bound_node.CopyFrom(node)
        del bound_node.attribute[:]
        bound_node.attribute.extend(attributes.values())
        types = [_type(value).SerializeToString() for value in inputs]
        content = schema.get_context_dependent_function_with_opset_version(
            dependent_version, bound_node.SerializeToString(), types
        )
    elif version:
        content = schema.get_function_with_opset_version(version)
    else:
        return None
    body.ParseFromString(content)
    return body if len(body.node) else None


def _type(value: Value | None) -> Proto:
    if value is None:
        return onnx().TypeProto()
    return onnx().helper.make_tensor_type_proto(data_type(value.element), value.dims)


def _defaults(schema: Any) -> dict[str, Proto]:
    return {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }


def _describe(node: Proto) -> str:
    """Return the name of a node for messages."""
    return f'node "{node.name}"' if node.name else "a node without a name"
