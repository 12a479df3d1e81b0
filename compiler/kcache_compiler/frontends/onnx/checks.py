"""Validates a model as a whole, before its nodes are translated."""

from __future__ import annotations

import math

from kcache_compiler.errors import CompilerError, InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.onnx.proto import (
    Proto,
    all_nodes,
    data_type_name,
    element_name,
    function_nodes,
    graphs,
    inner_graphs,
    nodes,
    onnx,
    own_opsets,
    tensor_array,
)

_OTHER_FORMATS = {
    b"ML\xefR": "MLIR bytecode: send it with its own format",
    b"PK\x03\x04": "a zip archive, as torch.export makes: send it with format 'torch'",
}
_TEXT_BYTES = b"\t\n\r"


def parse(program: bytes) -> Proto:
    """Return the validated model. Raises ``InvalidProgram`` or ``UnsupportedOp``."""
    model = onnx().ModelProto()
    try:
        model.ParseFromString(program)
    except Exception as error:  # noqa: BLE001 - protobuf's DecodeError, which the compiler does not import
        raise _not_a_model(program, str(error)) from None
    if not model.HasField("graph") or not model.ir_version or not len(model.opset_import):
        raise _not_a_model(program, "it has no graph, no IR version or no opset")
    _check_versions(model)
    _check_storage(model)
    _reject_recursion(model)
    for info in model.graph.output:
        # Models omit unknown shapes of outputs, which the checker requires and nothing reads.
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
    try:
        onnx().checker.check_model(model)
    except (onnx().checker.ValidationError, onnx().shape_inference.InferenceError) as error:
        _reject_unknown_domains(model)
        raise InvalidProgram(f"the model is not valid ONNX: {str(error)[:2000]}") from None
    except (RuntimeError, ValueError, TypeError) as error:
        raise InvalidProgram(f"the model is not valid ONNX: {str(error)[:2000]}") from None
    return convert_old_opset(model)


def _not_a_model(program: bytes, reason: str) -> InvalidProgram:
    """Return the error for bytes that are not a model."""
    for magic, format_name in _OTHER_FORMATS.items():
        if program.startswith(magic):
            return InvalidProgram(f"the program is not an onnx.ModelProto but {format_name}")
    beginning = program[:256]
    if beginning and all(byte >= 0x20 or byte in _TEXT_BYTES for byte in beginning):
        return InvalidProgram(
            "the program is not an onnx.ModelProto but text: send MLIR with format 'stablehlo', 'linalg' or "
            "'torch', and a model's text form after onnx.parser.parse_model"
        )
    return InvalidProgram(f"the program is not an onnx.ModelProto: {reason}")


def _check_versions(model: Proto) -> None:
    """Raise for IR versions and opsets that this toolchain does not support."""
    newest = onnx().IR_VERSION
    if model.ir_version > newest:
        raise InvalidProgram(
            f"the model has IR version {model.ir_version}; this toolchain reads up to {newest}: "
            "save it with an older version of onnx"
        )
    if any(o.domain in ("", "ai.onnx") and o.version > 2**31 for o in model.opset_import):
        raise InvalidProgram("the model has an opset that does not exist")
    newest_opset = onnx().defs.onnx_opset_version()
    opsets = own_opsets(model)
    if not opsets and any(node.domain in ("", "ai.onnx") for node in nodes(model.graph)):
        raise InvalidProgram("the model imports no opset of ONNX's own domain, but uses its operators")
    for opset in opsets:
        if opset > newest_opset:
            raise InvalidProgram(
                f"the model has opset {opset}; this toolchain supports up to {newest_opset}: convert the "
                f"model with "
                "onnx.version_converter"
            )
        if opset < 1:
            raise InvalidProgram(f"the model has opset {opset}; the first is 1")


def _check_storage(model: Proto) -> None:
    """Raise for tensors that are sparse or stored in other files, before anything looks for the files."""
    external = onnx().TensorProto.EXTERNAL
    for graph in graphs(model):
        if len(graph.sparse_initializer):
            name = graph.sparse_initializer[0].values.name
            raise UnsupportedOp("onnx.SparseTensorProto", f"the initializer {name!r} is sparse")
        for tensor in graph.initializer:
            if tensor.data_location == external or len(tensor.external_data):
                tensor_array(tensor, f"the initializer {tensor.name!r}")
    for node in all_nodes(model):
        for a in node.attribute:
            if a.HasField("t") and (a.t.data_location == external or len(a.t.external_data)):
                tensor_array(a.t, f'node "{node.name}"')


def _reject_recursion(model: Proto) -> None:
    """Raise for functions that call themselves, on which the checker may not terminate."""
    edges = {(f.domain, f.name): [(n.domain, n.op_type) for n in function_nodes(f)] for f in model.functions}
    visited: set[tuple[str, str]] = set()
    for root in edges:
        path = [(root, iter(edges[root]))]
        while path:
            function, pending = path[-1]
            callee = next(pending, None)
            if callee is None:
                visited.add(function)
                path.pop()
            elif any(callee == caller for caller, _ in path):
                raise InvalidProgram(f"the function {callee[1]} of domain {callee[0]!r} calls itself")
            elif callee in edges and callee not in visited:
                path.append((callee, iter(edges[callee])))


def _reject_unknown_domains(model: Proto) -> None:
    """Raise ``UnsupportedOp`` for a custom operator, which the checker reports as another error."""
    functions = {(f.domain, f.name) for f in model.functions}
    for node in nodes(model.graph):
        if node.domain not in ("", "ai.onnx") and (node.domain, node.op_type) not in functions:
            raise UnsupportedOp(
                f"{node.domain}.{node.op_type}",
                f"custom operators are not supported (domain {node.domain!r})",
                f'node "{node.name}"',
            )


def tensor_type(info: Proto, limits: Limits) -> tuple[str, list[int | str | None]]:
    """Return element type and dims of an input: sizes, symbol names, or None for an unnamed dynamic dim.

    Raises ``UnsupportedOp`` for an input that is no tensor, or whose element type buffers do not support,
    ``InvalidProgram`` for one without a shape, and ``LimitExceeded`` for rank or size.
    """
    type_kind = info.type.WhichOneof("value")
    if type_kind != "tensor_type":
        raise UnsupportedOp(
            "onnx.TypeProto", f"the input {info.name!r} is a {type_kind or 'value without type'}"
        )
    tensor = info.type.tensor_type
    element = element_name(tensor.elem_type)
    if element is None:
        raise UnsupportedOp(
            "onnx.TypeProto",
            f"the input {info.name!r} has elements of type {data_type_name(tensor.elem_type)}, which "
            "buffers do not support",
        )
    if not tensor.HasField("shape"):
        raise InvalidProgram(
            f"the input {info.name!r} has no shape: give it a size or a name (dim_param) for each dim"
        )
    check("rank of a tensor", len(tensor.shape.dim), limits.rank)
    dims: list[int | str | None] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            dims.append(dim.dim_value)
        else:
            dims.append(dim.dim_param or None)
    check("elements of a tensor", math.prod(d for d in dims if isinstance(d, int)), limits.tensor_elements)
    return element, dims


#: The first opset whose operators broadcast by NumPy's rule; older models are converted to it.
OLDEST_OPSET = 7


def convert_old_opset(model: Proto) -> Proto:
    """Return a model of an opset below ``OLDEST_OPSET`` as ``onnx.version_converter`` converts it.

    Raises ``UnsupportedOp`` if the converter fails or leaves operators that the newer opset does not have.
    """
    opset = min(own_opsets(model), default=OLDEST_OPSET)
    if opset >= OLDEST_OPSET:
        return model
    from onnx import version_converter

    try:
        converted = version_converter.convert_version(_insert_operand_axes(model), OLDEST_OPSET)
        onnx().checker.check_model(converted)
    except CompilerError:
        raise
    except Exception as error:  # noqa: BLE001 - the converter raises any exception
        raise UnsupportedOp(
            "onnx.ModelProto",
            f"the model has opset {opset}, which onnx.version_converter cannot convert to {OLDEST_OPSET}: "
            f"{str(error)[:500]}",
        ) from None
    return converted


#: Operators whose second operand is aligned with an axis of the first by an attribute, before opset 7.
_BINARY_WITH_AXIS = frozenset({"Add", "Div", "Mul", "Pow", "Sub"})


def _insert_operand_axes(model: Proto) -> Proto:
    """Insert axes of size 1 into second operands, so that NumPy's broadcasting aligns them as old opsets do.

    A slope of ``PRelu`` is aligned with the channels, another operand with the axis that ``axis`` names. The
    converter does neither.
    """
    if not any(_has_operand_axis(node) for node in all_nodes(model)):
        return model
    model = onnx().shape_inference.infer_shapes(model)
    graph = model.graph
    ranks = {
        info.name: len(info.type.tensor_type.shape.dim)
        for info in (*graph.input, *graph.value_info, *graph.output)
        if info.type.tensor_type.HasField("shape")
    }
    ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    if any(_has_operand_axis(node) for inner in inner_graphs(graph.node) for node in nodes(inner)):
        raise UnsupportedOp(
            "onnx.ModelProto", "an operand with an axis, of an opset below 7, inside a branch or loop"
        )
    graph_nodes = list(graph.node)
    del graph.node[:]
    for index, node in enumerate(graph_nodes):
        if _has_operand_axis(node):
            first_rank, second_rank = (ranks.get(name) for name in node.input[:2])
            if first_rank is None or second_rank is None:
                reason = "operands with an axis, of an opset below 7, need static ranks"
                raise UnsupportedOp(f"onnx.{node.op_type}", reason, f'node "{node.name}"')
            axis = _remove_axis_attribute(node)
            if node.op_type == "PRelu":
                axis = 1 if second_rank == 1 < first_rank else first_rank - second_rank
            missing = first_rank - (axis % first_rank if first_rank else 0) - second_rank
            if missing > 0:
                name = f"kcache.operand.{index}"
                axes = list(range(second_rank, second_rank + missing))
                graph.node.append(onnx().helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes))
                node.input[1] = name
        graph.node.append(node)
    return onnx().shape_inference.infer_shapes(model)


def _has_operand_axis(node: Proto) -> bool:
    """Return whether the second operand of a node is aligned with an axis of the first."""
    return node.op_type == "PRelu" or (
        node.op_type in _BINARY_WITH_AXIS and any(attribute.name == "axis" for attribute in node.attribute)
    )


def _remove_axis_attribute(node: Proto) -> int:
    """Remove the attribute ``axis`` of a node and return its value, 0 if absent."""
    axis = 0
    kept = [attribute for attribute in node.attribute if attribute.name != "axis"]
    for attribute in node.attribute:
        if attribute.name == "axis":
            axis = attribute.i
    del node.attribute[:]
    node.attribute.extend(kept)
    return axis
