"""Lowers the custom calls that ``jax.export`` writes for operations with symbolic sizes.

``stablehlo.dynamic_reduce_window`` keeps its call, whose first operands become the results of a
``reduce_window`` with windows of one element: that operation shows the combiner and the element types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kcache_compiler.frontends.stablehlo.function_text import FunctionText, replace_by_call
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import RankedTensorType

    from kcache_compiler.mlir.types import Module, Op

REDUCE_WINDOW = "stablehlo.dynamic_reduce_window"
_TOP_K = "stablehlo.dynamic_top_k"
_APPROX_TOP_K = ("stablehlo.dynamic_approx_top_k", "ApproxTopK")
#: Operands of a window: sizes, strides, dilations of the operand and of the window, padding.
_WINDOW_OPERANDS = 5


def lower_dynamic_calls(module: Module, calls: list[Op]) -> None:
    """Replace each well-formed call of a known target by a call of a function that defines it."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for index, operation in enumerate(calls):
            define = _definition_for(operation)
            if define is not None:
                text = FunctionText(f"kcache.open.{index}", operation)
                replace_by_call(module, operation, text.name, define(operation, text))


def _definition_for(operation: Op) -> Callable[[Op, FunctionText], str] | None:
    """Return the function that defines a call, None for other targets and malformed calls."""
    target: str = lazy.string(operation.attributes["call_target_name"])
    types = [lazy.tensor_of(value) for value in (*operation.operands, *operation.results)]
    if not all(hasattr(type, "rank") and hasattr(type, "element_type") for type in types):
        return None
    operands, results = types[: len(operation.operands)], types[len(operation.operands) :]
    comparator = _called_function(operation)
    if (
        target == REDUCE_WINDOW
        and comparator
        and results
        and len(operands) == 2 * len(results) + _WINDOW_OPERANDS
    ):
        return _define_reduce_window
    if (
        target == _TOP_K
        and len(operands) == len(results) == 2
        and operands[0].rank > 0
        and _is_size_type(operands[1])
    ):
        return _define_top_k
    if target in _APPROX_TOP_K and comparator and _fallback_axis(operation) is not None:
        return _define_approx_top_k
    return None


def _called_function(operation: Op) -> str:
    """Return the name of the only function that a call names, otherwise an empty string."""
    if "called_computations" not in operation.attributes:
        return ""
    called = list(lazy.array(operation.attributes["called_computations"]))
    return lazy.string(called[0]) if len(called) == 1 else ""


def _is_size_type(type: RankedTensorType) -> bool:
    return type.rank == 0 and str(type.element_type) in ("i32", "i64")


def _define_reduce_window(operation: Op, text: FunctionText) -> str:
    """Define ``stablehlo.dynamic_reduce_window``; see the module's docstring."""
    count = len(operation.results)
    values, starts, window = text.names[:count], text.names[count : 2 * count], text.names[2 * count :]
    rank = lazy.tensor_of(operation.operands[0]).rank
    types = [
        text.type(str(lazy.tensor_of(result).element_type), list(lazy.tensor_of(operand).shape))
        for operand, result in zip(list(operation.operands)[:count], operation.results, strict=True)
    ]
    scalars = [f"tensor<{lazy.tensor_of(result).element_type}>" for result in operation.results]
    body = text.calling_region(_called_function(operation), scalars * 2, scalars)
    unit_window = f"array<i64{':' if rank else ''} {', '.join(['1'] * rank)}>"
    elements = text.emit(
        f'"stablehlo.reduce_window"({", ".join([*values, *starts])}) <{{window_dimensions = {unit_window}}}> '
        f"({{{body}}}) : ({', '.join(text.types[: 2 * count])}) -> ({', '.join(types)})",
        count,
    )
    results = [str(result.type) for result in operation.results]
    values = text.emit(
        f'stablehlo.custom_call @"{REDUCE_WINDOW}"({", ".join([*elements, *window])}) : '
        f"({', '.join([*types, *text.types[2 * count :]])}) -> ({', '.join(results)})",
        count,
    )
    return text.function(values)


def _define_top_k(operation: Op, text: FunctionText) -> str:
    """Define top-k as a stable sort in descending order, cut to the first elements."""
    type = lazy.tensor_of(operation.operands[0])
    axis = type.rank - 1
    sizes = text.sizes(text.names[0], type, str(lazy.tensor_of(operation.operands[1]).element_type))
    indices = text.iota(sizes, type, axis, str(lazy.tensor_of(operation.results[1]).element_type))
    element = str(type.element_type)
    total = ", TOTALORDER" if element.startswith(("f", "bf")) else ""
    scalar, index = f"tensor<{element}>", f"tensor<{lazy.tensor_of(operation.results[1]).element_type}>"
    body = (
        f"\n^bb0(%p: {scalar}, %q: {scalar}, %i: {index}, %j: {index}):\n"
        f"%g = stablehlo.compare GT, %p, %q{total} : ({scalar}, {scalar}) -> tensor<i1>\n"
        "stablehlo.return %g : tensor<i1>\n"
    )
    sizes = [*sizes[:axis], text.names[1]]
    return text.function(_sort_and_slice(operation, text, [text.names[0], indices], body, axis, sizes))


def _fallback_axis(operation: Op) -> int | None:
    """Return the axis of an approximate top-k with dynamic sizes that requests the exact result."""
    attributes, count = operation.attributes, len(operation.results)
    if "mhlo.backend_config" not in attributes:
        return None
    details = lazy.dictionary(attributes["mhlo.backend_config"])
    if (
        "is_fallback" not in details
        or not lazy.boolean(details["is_fallback"])
        or "reduction_dim" not in details
    ):
        return None
    values = list(operation.operands)[:count]
    rank = lazy.tensor_of(values[0]).rank if values else 0
    dynamic = lazy.string(attributes["call_target_name"]) == _APPROX_TOP_K[0]
    shapes = len(operation.operands) - 2 * count - int(dynamic)
    if any(lazy.tensor_of(value).rank != rank for value in values) or shapes not in (0, count):
        return None
    if dynamic and not _is_size_type(lazy.tensor_of(operation.operands[2 * count])):
        return None
    if not dynamic and ("top_k" not in details or lazy.tensor_of(values[0]).has_static_shape):
        return None
    axis: int = lazy.integer(details["reduction_dim"])
    return axis if 0 <= axis < rank else None


def _define_approx_top_k(operation: Op, text: FunctionText) -> str:
    """Define an approximate top-k as a sort by its comparator, cut to the first elements."""
    count, axis = len(operation.results), _fallback_axis(operation)
    assert axis is not None
    values = text.names[:count]
    dynamic = lazy.string(operation.attributes["call_target_name"]) == _APPROX_TOP_K[0]
    type = lazy.tensor_of(operation.operands[0])
    element = str(lazy.tensor_of(operation.operands[2 * count]).element_type) if dynamic else "i32"
    sizes = text.sizes(values[0], type, element)
    details = lazy.dictionary(operation.attributes["mhlo.backend_config"])
    sizes[axis] = text.names[2 * count] if dynamic else text.scalar(lazy.integer(details["top_k"]), element)
    scalars = [
        f"tensor<{lazy.tensor_of(value).element_type}>"
        for value in list(operation.operands)[:count]
        for _ in "pq"
    ]
    body = text.calling_region(_called_function(operation), scalars, ["tensor<i1>"])
    return text.function(_sort_and_slice(operation, text, values, body, axis, sizes))


def _sort_and_slice(
    operation: Op, text: FunctionText, values: Sequence[str], body: str, axis: int, sizes: Sequence[str]
) -> list[str]:
    """Sort ``values`` together along ``axis``; return their leading slices of the sizes ``sizes``."""
    shape = list(lazy.tensor_of(operation.operands[0]).shape)
    elements = [
        str(lazy.tensor_of(operation.operands[0]).element_type),
        str(lazy.tensor_of(operation.results[1]).element_type),
    ]
    types = [text.type(element, shape) for element in elements]
    sorted_values = text.emit(
        f'"stablehlo.sort"({", ".join(values)}) <{{dimension = {axis} : i64, is_stable = true}}> ({{{body}}})'
        f" : ({', '.join(types)}) -> ({', '.join(types)})",
        len(values),
    )
    return [
        text.leading_slice(value, type, sizes, str(result.type))
        for value, type, result in zip(sorted_values, types, operation.results, strict=True)
    ]
