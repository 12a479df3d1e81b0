"""Validates a model as a whole, before its nodes are translated."""

from __future__ import annotations

import math

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.onnx.opset_conversion import convert_old_opset
from kcache_compiler.frontends.onnx.proto import (
    Proto,
    all_nodes,
    data_type_name,
    element_name,
    function_nodes,
    graphs,
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
