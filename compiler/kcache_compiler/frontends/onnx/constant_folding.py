"""Folds values that do not depend on the inputs, of which shapes, axes and slices are computed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from kcache_compiler.frontends.onnx.emitter import ELEMENT_BY_DTYPE, Value, constant_value
from kcache_compiler.frontends.onnx.node import OnnxNode
from kcache_compiler.frontends.onnx.proto import Array, Proto, onnx

#: Largest number of elements of a folded value; shapes are far smaller.
_MAX_ELEMENTS = 1024

#: Operators of which shapes are computed.
_FOLDED = frozenset(
    {
        "Abs",
        "Add",
        "And",
        "Cast",
        "CastLike",
        "Ceil",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Div",
        "Equal",
        "Expand",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "Less",
        "LessOrEqual",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "Range",
        "Reciprocal",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "Reshape",
        "Round",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Size",
        "Slice",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
        "Xor",
    }
)

#: Operators that fill a tensor of a given shape; values computed from their results are data too.
_FILLING = frozenset({"ConstantOfShape", "Expand", "Range", "Tile"})


def fold(
    node: OnnxNode, results: list[Value | None], attributes: Mapping[str, Proto], opset: int
) -> list[Value | None]:
    """Record the elements of results whose inputs are all constant, as ONNX's reference evaluates them.

    Results computed from constants become constants, so that a size of the model does not depend on the
    others in the same shape. A result that fills a shape stays as it was emitted: it is data, not elements of
    this size.
    """
    if node.op not in _FOLDED or all(r is None or r.constant is not None for r in results):
        return results
    arrays = [None if value is None else value.constant for value in node.inputs]
    is_given = [value is not None for value in node.inputs]
    if any(is_present and array is None for is_present, array in zip(is_given, arrays, strict=True)):
        return results
    if any(r is not None and np.prod(r.dims, dtype=np.float64) > _MAX_ELEMENTS for r in results):
        return results
    try:
        computed = _evaluate(node, [a for a in arrays if a is not None], is_given, attributes, opset)
    except Exception:  # noqa: BLE001 - the reference raises any exception; nothing is folded then
        return results
    is_data = node.op in _FILLING or any(value is not None and value.name for value in node.inputs)
    return [_with_constant(result, array, is_data) for result, array in zip(results, computed, strict=False)]


def _with_constant(result: Value | None, array: Array, is_data: bool) -> Value | None:
    """Return a result with its elements: as a constant, or still emitted if it is data."""
    array = np.asarray(array)
    if (
        result is None
        or result.dims != array.shape
        or ELEMENT_BY_DTYPE.get(array.dtype.name) != result.element
    ):
        return result
    return result._replace(constant=array) if is_data else constant_value(array)


def _evaluate(
    onnx_node: OnnxNode,
    arrays: Sequence[Array],
    is_given: Sequence[bool],
    attributes: Mapping[str, Proto],
    opset: int,
) -> list[Array]:
    helper = onnx().helper
    inputs = [f"i{i}" if is_present else "" for i, is_present in enumerate(is_given)]
    outputs = [name and f"o{i}" for i, name in enumerate(onnx_node.outputs)]
    node = helper.make_node(onnx_node.op, inputs, outputs)
    node.attribute.extend(attributes.values())
    names = [name for name in inputs if name]
    function = helper.make_function(
        "kcache", "fold", names, [o for o in outputs if o], [node], [helper.make_opsetid("", opset)]
    )
    evaluator = onnx().reference.ReferenceEvaluator(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(evaluator.run(None, dict(zip(names, arrays, strict=True)), attributes={}))
