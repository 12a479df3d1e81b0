"""Values that do not depend on the inputs, computed: what shapes, axes and slices are made of."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from kcache_compiler.frontends.onnx.emitter import ELEMENTS, Value, known
from kcache_compiler.frontends.onnx.proto import Array, Proto, onnx
from kcache_compiler.frontends.onnx.site import Site

#: Elements of the largest value that is computed: shapes are far smaller.
_MOST = 1024

#: Operators that shapes are computed with.
_OPS = frozenset(
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

#: Those that make a tensor of a shape; what is computed of their results is data too.
_SPREADING = frozenset({"ConstantOfShape", "Expand", "Range", "Tile"})


def fold(
    site: Site, results: list[Value | None], attributes: Mapping[str, Proto], opset: int
) -> list[Value | None]:
    """Note the elements of results whose inputs are all known, as ONNX's reference computes them.

    Numbers made of numbers become constants: what a size of the model leads to may not depend on the others
    that stand beside it in a shape. What spreads them over a shape stays as it was emitted: as data it is
    what the node says, not elements of this size.
    """
    if site.op not in _OPS or all(r is None or r.known is not None for r in results):
        return results
    arrays = [None if value is None else value.known for value in site.inputs]
    given = [value is not None for value in site.inputs]
    if any(there and array is None for there, array in zip(given, arrays, strict=True)):
        return results
    if any(r is not None and np.prod(r.dims, dtype=np.float64) > _MOST for r in results):
        return results
    try:
        computed = _evaluate(site, [a for a in arrays if a is not None], given, attributes, opset)
    except Exception:  # noqa: BLE001 - the reference raises as it likes; nothing is known then
        return results
    spreads = site.op in _SPREADING or any(value is not None and value.name for value in site.inputs)
    return [_noted(result, array, spreads) for result, array in zip(results, computed, strict=False)]


def _noted(result: Value | None, array: Array, spreads: bool) -> Value | None:
    array = np.asarray(array)
    if result is None or result.dims != array.shape or ELEMENTS.get(array.dtype.name) != result.element:
        return result
    return result._replace(known=array) if spreads else known(array)


def _evaluate(
    site: Site, arrays: Sequence[Array], given: Sequence[bool], attributes: Mapping[str, Proto], opset: int
) -> list[Array]:
    helper = onnx().helper
    inputs = [f"i{i}" if there else "" for i, there in enumerate(given)]
    outputs = [name and f"o{i}" for i, name in enumerate(site.outputs)]
    node = helper.make_node(site.op, inputs, outputs)
    node.attribute.extend(attributes.values())
    names = [name for name in inputs if name]
    function = helper.make_function(
        "kcache", "fold", names, [o for o in outputs if o], [node], [helper.make_opsetid("", opset)]
    )
    evaluator = onnx().reference.ReferenceEvaluator(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(evaluator.run(None, dict(zip(names, arrays, strict=True)), attributes={}))
