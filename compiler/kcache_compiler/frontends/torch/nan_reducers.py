"""Rewrites torch-mlir's reducers of extremes with indices so that NaN wins, as in PyTorch.

Its reducers select by ``a >= b``, and of equal elements the first index. The index of a row is that of its
first NaN, that of a window its last one. Windows start with index 0, which is not among most of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcache_compiler.mlir import context as mlir

if TYPE_CHECKING:
    from torch_mlir.ir import OpView

    from kcache_compiler.mlir.types import Module, Op, Type, Value

_REDUCER = ("compare", "select", "compare", "minimum", "select", "select", "return")
_DIRECTIONS = ("GE", "LE")


def propagate_nan(module: Module) -> None:
    """Rewrite the reducers that torch-mlir created, in place."""
    with module.context:
        for operation in mlir.all_operations(module.operation):
            if operation.name in ("stablehlo.reduce", "stablehlo.reduce_window") and _is_extreme_reducer(
                operation
            ):
                is_window = operation.name == "stablehlo.reduce_window"
                if is_window:
                    _start_after_all_indices(operation)
                _compare_nan(list(operation.regions[0].blocks[0].operations), last=is_window)


def _is_extreme_reducer(operation: Op) -> bool:
    """Return whether the body is torch-mlir's selection of the larger or smaller of two elements."""
    if len(operation.operands) != 4:
        return False
    body = list(operation.regions[0].blocks[0].operations)
    if tuple(op.operation.name.removeprefix("stablehlo.") for op in body) != _REDUCER:
        return False
    return any(
        f"comparison_direction {direction}" in str(body[0].attributes["comparison_direction"])
        for direction in _DIRECTIONS
    )


def _start_after_all_indices(operation: Op) -> None:
    """Set the initial index of windows to the largest value: of equal elements the first index wins."""
    native = mlir.native_ir()
    with native.InsertionPoint(operation), operation.location:
        type = operation.operands[3].type
        bits = int(str(type).removeprefix("tensor<i").removesuffix(">"))
        largest = native.Attribute.parse(f"dense<{2 ** (bits - 1) - 1}> : {type}")
        constant = native.Operation.create(
            "stablehlo.constant", results=[type], attributes={"value": largest}
        )
        operation.operands[3] = constant.result


def _compare_nan(body: list[OpView], last: bool) -> None:
    """Extend both comparisons to NaN; ``last`` selects the last of two NaNs."""
    comparison, _, equal, first_index, _, selected_index, _ = (op.operation for op in body)
    if "FLOAT" not in str(comparison.attributes["compare_type"]):
        return
    native = mlir.native_ir()
    with native.InsertionPoint(body[1]), comparison.location:
        left_is_nan, right_is_nan = (_is_nan(comparison, value) for value in comparison.operands)
        comparison_or_nan = _boolean("or", comparison.result, left_is_nan)
    with native.InsertionPoint(body[3]), equal.location:
        both_nan = _boolean("and", left_is_nan, right_is_nan)
        equal_or_nan = _boolean("or", equal.result, both_nan)
    for old, new in ((comparison, comparison_or_nan), (equal, equal_or_nan)):
        for operation in body:
            for index, operand in enumerate(operation.operation.operands):
                if operand == old.result:
                    operation.operation.operands[index] = new
    if last:
        with native.InsertionPoint(selected_index), selected_index.location:
            last_index = _create("maximum", first_index.result.type, *first_index.operands)
            selected_index.operands[1] = _create(
                "select", first_index.result.type, both_nan, last_index, first_index.result
            )


def _is_nan(like: Op, value: Value) -> Value:
    """Return whether a value is NaN, compared like ``like``."""
    attributes = {
        "comparison_direction": mlir.native_ir().Attribute.parse("#stablehlo<comparison_direction NE>"),
        "compare_type": like.attributes["compare_type"],
    }
    comparison = mlir.native_ir().Operation.create(
        like.name, results=[like.result.type], operands=[value, value], attributes=attributes
    )
    return comparison.result


def _boolean(name: str, left: Value, right: Value) -> Value:
    return _create(name, left.type, left, right)


def _create(name: str, type: Type, *operands: Value) -> Value:
    native = mlir.native_ir()
    return native.Operation.create(f"stablehlo.{name}", results=[type], operands=list(operands)).result
