"""Walks an ONNX graph, node by node, into StableHLO: names, functions, attributes, sub-graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.onnx import control_flow as onnx_control
from kcache_compiler.frontends.onnx.builder import Build
from kcache_compiler.frontends.onnx.constant_folding import fold
from kcache_compiler.frontends.onnx.emitter import Value, known
from kcache_compiler.frontends.onnx.ops import TABLE
from kcache_compiler.frontends.onnx.ops.counted import passed_on, refuse
from kcache_compiler.frontends.onnx.proto import Proto, data_type, element_name, onnx, tensor_array
from kcache_compiler.frontends.onnx.site import Site

Names = dict[str, Value]

#: What arithmetic on attributes that fit no operator ends in.
_MISFITS = (ValueError, TypeError, IndexError, KeyError, ArithmeticError)


class Scope:
    """Values by name in a graph or function body; sub-graphs see those outside."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        attributes: Mapping[str, Proto],
        outer: Scope | None = None,
        depth: int = 0,
    ) -> None:
        self.opsets = opsets
        #: Attributes of the call that the body's own refer to.
        self.attributes = attributes
        self.outer = outer
        self.depth = depth
        self.values: Names = {}

    def find(self, name: str) -> Value | None:
        """Return the value of a name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None


class Translator:
    """Emits the nodes of one model."""

    def __init__(self, build: Build, limits: Limits, functions: Sequence[Proto]) -> None:
        self.b = build
        self.limits = limits
        self._functions = {(f.domain, f.name, f.overload): f for f in functions}
        self._nodes = 0

    def graph(self, graph: Proto, scope: Scope) -> list[Value]:
        """Run a graph's nodes over the values in ``scope``; return its outputs."""
        for node in graph.node:
            self._node(node, scope)
        results = [self._output(output.name, scope) for output in graph.output]
        for output, value in zip(graph.output, results, strict=True):
            declared = element_name(output.type.tensor_type.elem_type)
            if declared is not None and declared != value.element:
                raise InvalidProgram(
                    f"output {output.name!r} is declared as {declared}, and computed as {value.element}"
                )
        return results

    def subgraph(self, graph: Proto, outer: Scope, inputs: Sequence[Value]) -> list[Value]:
        """Run the body of a control operator."""
        check("nesting of graphs", outer.depth + 1, self.limits.region_depth)
        scope = Scope(outer.opsets, outer.attributes, outer, outer.depth + 1)
        for tensor in graph.initializer:
            scope.values[tensor.name] = known(tensor_array(tensor, f"initializer {tensor.name!r}"))
        if len(graph.input) != len(inputs):
            raise InvalidProgram(
                f"the graph {graph.name!r} takes {len(graph.input)} inputs, not {len(inputs)}"
            )
        for given, value in zip(graph.input, inputs, strict=True):
            scope.values[given.name] = value
        results = self.graph(graph, scope)
        if any(value.counted for value in results):
            reason = "the size of a result of its graph depends on data"
            raise UnsupportedOp(f"onnx.{graph.name or 'GraphProto'}", reason)
        return results

    # -- nodes

    def _node(self, node: Proto, scope: Scope) -> None:
        self._nodes += 1
        check("number of nodes", self._nodes, self.limits.operations)
        if node.op_type == "Constant" and all(name in scope.values for name in node.output):
            return  # bound as a weight
        with self.b.at(node.name or self.b.location):
            try:
                results = self._results(node, scope)
            except _MISFITS as error:
                raise InvalidProgram(
                    f"{node.op_type} at {_where(node)}: inputs or attributes do not fit it ({error})"
                ) from None
        if len(results) < sum(1 for name in node.output if name):
            kinds = [name for name in node.output[len(results) :] if name]
            self._missing(node, kinds)
        for name, value in zip(node.output, results, strict=False):
            if name and value is not None:
                scope.values[name] = value

    @staticmethod
    def _missing(node: Proto, names: Sequence[str]) -> None:
        raise UnsupportedOp(f"onnx.{node.op_type}", f"it does not make {', '.join(names)}", _where(node))

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
                f"custom operators are not known here (domain {domain!r}): give the model a function of this "
                "name, or replace the node by operators of ONNX's own domain",
                _where(node),
            )
        return self._standard(node, scope, inputs, attributes)

    def _standard(
        self, node: Proto, scope: Scope, inputs: list[Value | None], attributes: dict[str, Proto]
    ) -> Sequence[Value | None]:
        op, opset = node.op_type, scope.opsets.get("", 0)
        schema = _schema(node, opset)
        values = {name: onnx().helper.get_attribute_value(a) for name, a in attributes.items()}
        site = Site(self.b, node.name, op, schema.since_version, inputs, values, list(node.output))
        counted = any(value is not None and value.counted for value in inputs)
        if op in onnx_control.OPS and not counted:
            return onnx_control.OPS[op](self, site, scope)
        entry = TABLE.get(op)
        if counted:
            if entry is None or schema.since_version > entry[0]:
                refuse(site)
            return passed_on(site, entry[1])
        if entry is not None and schema.since_version <= entry[0]:
            made = entry[1](site)
            if made is not None:
                results: list[Value | None] = [made] if isinstance(made, Value) else list(made)
                return fold(site, results, attributes, opset)
        body = _definition(schema, node, opset, inputs, attributes)
        if body is None:
            since = f"as of opset {schema.since_version} " if entry else ""
            site.unsupported(f"the operator {since}has no legalization")
        return self._call(body, inputs, attributes, scope, (), _defaults(schema))

    def _input(self, node: Proto, name: str, scope: Scope) -> Value | None:
        if not name:
            return None
        value = scope.find(name)
        if value is None:
            raise InvalidProgram(
                f"{node.op_type} at {_where(node)} reads {name!r}, which nothing before it makes"
            )
        return value

    @staticmethod
    def _output(name: str, scope: Scope) -> Value:
        value = scope.find(name)
        if value is None:
            raise InvalidProgram(f"the output {name!r} is made by no node")
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
        more: Mapping[str, Proto] | None = None,
    ) -> list[Value | None]:
        """Inline a function: the model's own, or an operator's definition."""
        check("depth of functions", outer.depth + 1, min(self.limits.call_depth, self.limits.region_depth))
        opsets = {**outer.opsets, **{o.domain: o.version for o in function.opset_import}}
        bound = {**(more or {}), **{a.name: a for a in defaults}, **attributes}
        scope = Scope(opsets, bound, None, outer.depth + 1)
        for name, value in zip(function.input, inputs, strict=False):
            if value is not None:
                scope.values[name] = value
        absent = set(function.input) - set(scope.values)
        for node in function.node:
            if absent.intersection(node.input):
                given = onnx().NodeProto()
                given.CopyFrom(node)
                del given.input[:]
                given.input.extend("" if name in absent else name for name in node.input)
                node = given
            self._node(node, scope)
        return [scope.find(name) for name in function.output]


def _schema(node: Proto, opset: int) -> Any:
    try:
        return onnx().defs.get_schema(node.op_type, opset, "")
    except onnx().defs.SchemaError:
        raise InvalidProgram(
            f"{node.op_type} at {_where(node)} is no operator of opset {opset} of ONNX's own domain"
        ) from None


def _definition(
    schema: Any, node: Proto, opset: int, inputs: Sequence[Value | None], attributes: Mapping[str, Proto]
) -> Proto | None:
    """Return the body that the standard gives an operator, in the newest version up to ``opset``."""
    depends = max((v for v in schema.context_dependent_function_opset_versions if v <= opset), default=0)
    plain = max((v for v in schema.function_opset_versions if v <= opset), default=0)
    body = onnx().FunctionProto()
    if depends > plain:
        given = onnx().NodeProto()
        given.CopyFrom(node)
        del given.attribute[:]
        given.attribute.extend(attributes.values())
        types = [_type(value).SerializeToString() for value in inputs]
        content = schema.get_context_dependent_function_with_opset_version(
            depends, given.SerializeToString(), types
        )
    elif plain:
        content = schema.get_function_with_opset_version(plain)
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


def _where(node: Proto) -> str:
    return f'node "{node.name}"' if node.name else "a node without a name"
