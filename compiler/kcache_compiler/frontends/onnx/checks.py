"""What may be wrong with a model as a whole, before its nodes are read."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kcache_compiler.errors import CompilerError, InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.onnx.proto import Proto, data_type_name, element_name, onnx, tensor_array

#: The first opset whose operators broadcast as NumPy does; older models are converted to it.
OLDEST_OPSET = 7

_STARTS = {
    b"ML\xefR": "MLIR bytecode: send it with its own format",
    b"PK\x03\x04": "a zip archive, as torch.export makes: send it with format 'torch'",
}
_TEXT = b"\t\n\r"


def parse(program: bytes) -> Proto:
    """Return the model, checked as a whole; raises ``InvalidProgram`` or ``UnsupportedOp``."""
    model = onnx().ModelProto()
    try:
        model.ParseFromString(program)
    except Exception as error:  # noqa: BLE001 - protobuf's DecodeError, which the compiler does not import
        raise _no_model(program, str(error)) from None
    if not model.HasField("graph") or not model.ir_version or not len(model.opset_import):
        raise _no_model(program, "it has no graph, no IR version or no opset")
    _versions(model)
    _storage(model)
    _no_recursion(model)
    for info in model.graph.output:
        # Models state no shape for outputs where it is unknown; the checker wants one. Nothing reads it.
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
    try:
        onnx().checker.check_model(model)
    except (onnx().checker.ValidationError, onnx().shape_inference.InferenceError) as error:
        _unknown_domains(model)
        raise InvalidProgram(f"the model is not valid ONNX: {str(error)[:2000]}") from None
    except (RuntimeError, ValueError, TypeError) as error:
        raise InvalidProgram(f"the model is not valid ONNX: {str(error)[:2000]}") from None
    return _modern(model)


def _modern(model: Proto) -> Proto:
    """Return a model of an old opset as ``onnx.version_converter`` converts it.

    Raises ``UnsupportedOp`` where it cannot, or leaves what the newer opset does not have.
    """
    opset = min(_own_opsets(model), default=OLDEST_OPSET)
    if opset >= OLDEST_OPSET:
        return model
    from onnx import version_converter

    try:
        converted = version_converter.convert_version(_aligned(model), OLDEST_OPSET)
        onnx().checker.check_model(converted)
    except CompilerError:
        raise
    except Exception as error:  # noqa: BLE001 - the converter raises as it likes
        raise UnsupportedOp(
            "onnx.ModelProto",
            f"the model has opset {opset}, and onnx.version_converter does not convert it to {OLDEST_OPSET}: "
            f"{str(error)[:500]}",
        ) from None
    return converted


#: Operators whose second operand an attribute places at an axis of the first, before opset 7.
_PLACED = frozenset({"Add", "Div", "Mul", "Pow", "Sub"})


def _aligned(model: Proto) -> Proto:
    """Give second operands the axes of size 1 that put them where opsets below 7 do.

    A slope of ``PRelu`` is at the channels, an operand at the axis that ``axis`` names. The converter
    does neither.
    """
    if not any(_is_placed(node) for node in all_nodes(model)):
        return model
    model = onnx().shape_inference.infer_shapes(model)
    graph = model.graph
    ranks = {
        info.name: len(info.type.tensor_type.shape.dim)
        for info in (*graph.input, *graph.value_info, *graph.output)
        if info.type.tensor_type.HasField("shape")
    }
    ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    if any(_is_placed(node) for inner in _inner(graph.node) for node in nodes(inner)):
        raise UnsupportedOp("onnx.ModelProto", "operands of an opset below 7 inside of a branch or loop")
    body = list(graph.node)
    del graph.node[:]
    for number, node in enumerate(body):
        if _is_placed(node):
            first, second = (ranks.get(name) for name in node.input[:2])
            if first is None or second is None:
                reason = "the operands of an opset below 7 need shapes"
                raise UnsupportedOp(f"onnx.{node.op_type}", reason, f'node "{node.name}"')
            axis = _taken_axis(node)
            if node.op_type == "PRelu":
                axis = 1 if second == 1 < first else first - second
            behind = first - (axis % first if first else 0) - second
            if behind > 0:
                name = f"kcache.operand.{number}"
                axes = list(range(second, second + behind))
                graph.node.append(onnx().helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes))
                node.input[1] = name
        graph.node.append(node)
    return onnx().shape_inference.infer_shapes(model)


def _is_placed(node: Proto) -> bool:
    return node.op_type == "PRelu" or (
        node.op_type in _PLACED and any(attribute.name == "axis" for attribute in node.attribute)
    )


def _taken_axis(node: Proto) -> int:
    """The attribute ``axis``, which the node loses."""
    axis = 0
    kept = [attribute for attribute in node.attribute if attribute.name != "axis"]
    for attribute in node.attribute:
        if attribute.name == "axis":
            axis = attribute.i
    del node.attribute[:]
    node.attribute.extend(kept)
    return axis


def _own_opsets(model: Proto) -> set[int]:
    return {o.version for o in model.opset_import if o.domain in ("", "ai.onnx")}


def _no_model(program: bytes, reason: str) -> InvalidProgram:
    for start, what in _STARTS.items():
        if program.startswith(start):
            return InvalidProgram(f"the program is no onnx.ModelProto but {what}")
    head = program[:256]
    if head and all(byte >= 0x20 or byte in _TEXT for byte in head):
        return InvalidProgram(
            "the program is no onnx.ModelProto but text: send MLIR with format 'stablehlo', 'linalg' or "
            "'torch', and a model's text form after onnx.parser.parse_model"
        )
    return InvalidProgram(f"the program is no onnx.ModelProto: {reason}")


def _versions(model: Proto) -> None:
    newest = onnx().IR_VERSION
    if model.ir_version > newest:
        raise InvalidProgram(
            f"the model has IR version {model.ir_version}; this toolchain reads up to {newest}: "
            "save it with an older version of onnx"
        )
    if any(o.domain in ("", "ai.onnx") and o.version > 2**31 for o in model.opset_import):
        raise InvalidProgram("the model has an opset that is none")
    known = onnx().defs.onnx_opset_version()
    opsets = _own_opsets(model)
    if not opsets and any(node.domain in ("", "ai.onnx") for node in nodes(model.graph)):
        raise InvalidProgram("the model imports no opset of ONNX's own domain, and uses its operators")
    for opset in opsets:
        if opset > known:
            raise InvalidProgram(
                f"the model has opset {opset}; this toolchain knows up to {known}: convert the model with "
                "onnx.version_converter"
            )
        if opset < 1:
            raise InvalidProgram(f"the model has opset {opset}; the first is 1")


def graphs(model: Proto) -> Iterator[Proto]:
    """Yield every graph of a model."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        pending.extend(_inner(graph.node))


def _inner(body: Proto) -> list[Proto]:
    return [g for node in body for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]


def nodes(graph: Proto) -> Iterator[Proto]:
    """Yield the nodes of a graph and of those inside it."""
    pending = [graph]
    while pending:
        body = pending.pop().node
        yield from body
        pending.extend(_inner(body))


def all_nodes(model: Proto) -> Iterator[Proto]:
    """Yield the nodes of all graphs and functions of a model."""
    yield from nodes(model.graph)
    for function in model.functions:
        yield from _function_nodes(function)


def _storage(model: Proto) -> None:
    """Refuse elements in other files, before anything looks for the files."""
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


def _function_nodes(function: Proto) -> Iterator[Proto]:
    yield from function.node
    for graph in _inner(function.node):
        yield from nodes(graph)


def _no_recursion(model: Proto) -> None:
    """Raise for functions that call themselves: the checker may follow them for ever."""
    edges = {(f.domain, f.name): [(n.domain, n.op_type) for n in _function_nodes(f)] for f in model.functions}
    done: set[tuple[str, str]] = set()
    for root in edges:
        path = [(root, iter(edges[root]))]
        while path:
            here, pending = path[-1]
            callee = next(pending, None)
            if callee is None:
                done.add(here)
                path.pop()
            elif any(callee == above for above, _ in path):
                raise InvalidProgram(f"the function {callee[1]} of domain {callee[0]!r} calls itself")
            elif callee in edges and callee not in done:
                path.append((callee, iter(edges[callee])))


def _unknown_domains(model: Proto) -> None:
    """Raise for a custom operator, where the checker has another word for it."""
    own = {(f.domain, f.name) for f in model.functions}
    for node in nodes(model.graph):
        if node.domain not in ("", "ai.onnx") and (node.domain, node.op_type) not in own:
            raise UnsupportedOp(
                f"{node.domain}.{node.op_type}",
                f"custom operators are not known here (domain {node.domain!r})",
                f'node "{node.name}"',
            )


def tensor_type(info: Proto, limits: Limits) -> tuple[str, list[int | str | None]]:
    """Return element and dims of an input: sizes, names of sizes, or None for an unnamed one."""
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedOp("onnx.TypeProto", f"the input {info.name!r} is a {kind or 'value without type'}")
    tensor = info.type.tensor_type
    element = element_name(tensor.elem_type)
    if element is None:
        raise UnsupportedOp(
            "onnx.TypeProto",
            f"the input {info.name!r} has elements of type {data_type_name(tensor.elem_type)}, which no "
            "buffer has",
        )
    if not tensor.HasField("shape"):
        raise InvalidProgram(
            f"the input {info.name!r} has no shape: give it one, a size or a name (dim_param) for each dim"
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
