"""Converts models of old opsets to the oldest supported one."""

from __future__ import annotations

from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.frontends.onnx.proto import Proto, all_nodes, inner_graphs, nodes, onnx, own_opsets

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
