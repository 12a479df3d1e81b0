"""Extremes with their places: NaN is above all, as in PyTorch; torch-mlir's reducers pass it over.

Its reducers choose by ``a >= b``, and of equal elements the first place. A row's place is that of its first
NaN, a window's that of its last one. Windows begin with place 0, which is that of no element in most of them.
"""

from __future__ import annotations

from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

_REDUCER = ("compare", "select", "compare", "minimum", "select", "select", "return")
_AHEAD = ("GE", "LE")


def choose_nan(module: Native) -> None:
    """Rewrite the reducers that torch-mlir made, in place."""
    with module.context:
        for operation in mlir.all_operations(module.operation):
            if operation.name in ("stablehlo.reduce", "stablehlo.reduce_window") and _is_choice(operation):
                windows = operation.name == "stablehlo.reduce_window"
                if windows:
                    _begin_behind(operation)
                _see_nan(list(operation.regions[0].blocks[0].operations), last=windows)


def _is_choice(operation: Native) -> bool:
    """Whether its body is torch-mlir's choice of the greater or smaller of two elements."""
    if len(operation.operands) != 4:
        return False
    body = list(operation.regions[0].blocks[0].operations)
    if tuple(op.operation.name.removeprefix("stablehlo.") for op in body) != _REDUCER:
        return False
    return any(
        f"comparison_direction {one}" in str(body[0].attributes["comparison_direction"]) for one in _AHEAD
    )


def _begin_behind(operation: Native) -> None:
    """Let windows begin with a place behind all others: of equal elements the first one counts."""
    native = mlir.native_ir()
    with native.InsertionPoint(operation), operation.location:
        type = operation.operands[3].type
        bits = int(str(type).removeprefix("tensor<i").removesuffix(">"))
        most = native.Attribute.parse(f"dense<{2 ** (bits - 1) - 1}> : {type}")
        made = native.Operation.create("stablehlo.constant", results=[type], attributes={"value": most})
        operation.operands[3] = made.result


def _see_nan(body: list[Native], last: bool) -> None:
    """Both comparisons, and of two NaN the last place where ``last`` says so."""
    ahead, _, equal, first, _, place, _ = (op.operation for op in body)
    if "FLOAT" not in str(ahead.attributes["compare_type"]):
        return
    native = mlir.native_ir()
    with native.InsertionPoint(body[1]), ahead.location:
        left, right = (_compare(ahead, value) for value in ahead.operands)
        chosen = _logic("or", ahead.result, left)
    with native.InsertionPoint(body[3]), equal.location:
        both = _logic("and", left, right)
        same = _logic("or", equal.result, both)
    for old, new in ((ahead, chosen), (equal, same)):
        for operation in body:
            for index, operand in enumerate(operation.operation.operands):
                if operand == old.result:
                    operation.operation.operands[index] = new
    if last:
        with native.InsertionPoint(place), place.location:
            behind = _make("maximum", first.result.type, *first.operands)
            place.operands[1] = _make("select", first.result.type, both, behind, first.result)


def _compare(like: Native, value: Native) -> Native:
    """Whether a value is NaN."""
    attributes = {
        "comparison_direction": mlir.native_ir().Attribute.parse("#stablehlo<comparison_direction NE>"),
        "compare_type": like.attributes["compare_type"],
    }
    made = mlir.native_ir().Operation.create(
        like.name, results=[like.result.type], operands=[value, value], attributes=attributes
    )
    return made.result


def _logic(name: str, left: Native, right: Native) -> Native:
    return _make(name, left.type, left, right)


def _make(name: str, type: Native, *operands: Native) -> Native:
    native = mlir.native_ir()
    return native.Operation.create(f"stablehlo.{name}", results=[type], operands=list(operands)).result
