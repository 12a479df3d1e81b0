"""Custom calls that frontends write for operations of static shape, as StableHLO and CHLO operations.

- ``@check.expect_eq(result, expected)`` and the like, from StableHLO's published test programs, compare two
  values in an interpreter and have no results: they are erased.
- ``@mhlo.topk`` becomes ``chlo.top_k``.
- ``@ApproxTopK``, JAX's approximate top-k, becomes a sort and a slice if it requests the exact fallback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcache_compiler.frontends.stablehlo.function_text import replace_operation
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import RankedTensorType

    from kcache_compiler.mlir.types import Module, Op, Value

#: Targets of the test programs' comparisons.
_EXPECTATIONS = frozenset(
    f"check.expect_{kind}" for kind in ("eq", "eq_const", "close", "almost_eq", "almost_eq_const")
)


def erase_expectations(custom_calls: Sequence[Op]) -> None:
    """Erase the comparisons of test programs among ``custom_calls``."""
    for call in custom_calls:
        if lazy.string(call.attributes["call_target_name"]) in _EXPECTATIONS and not len(call.results):
            call.erase()


def restore_top_k(module: Module, custom_calls: Sequence[Op]) -> bool:
    """Rewrite ``custom_call @mhlo.topk`` (largest first) as ``chlo.top_k``; return whether any was found."""
    native = mlir.native_ir()
    restored = False
    with module.context, native.Location.unknown():
        for operation in custom_calls:
            attributes = operation.attributes
            if (
                lazy.string(attributes["call_target_name"]) != "mhlo.topk"
                or "mhlo.attributes" not in attributes
            ):
                continue
            details = lazy.dictionary(attributes["mhlo.attributes"])
            if "largest" in details and not lazy.boolean(details["largest"]):
                continue
            replace_operation(operation, "chlo.top_k", {"k": details["k"]})
            restored = True
    return restored


def lower_approx_top_k(module: Module, custom_calls: list[Op]) -> None:
    """Replace ``custom_call @ApproxTopK`` by a sort and a slice if it requests the exact fallback."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for operation in custom_calls:
            dimension = _fallback_dimension(operation)
            if dimension is not None:
                _sort(operation, dimension)


def _fallback_dimension(operation: Op) -> int | None:
    """Return the dimension of an exact top-k, None for another call."""
    attributes = operation.attributes
    required = ("mhlo.backend_config", "called_computations")
    if lazy.string(attributes["call_target_name"]) != "ApproxTopK" or not all(
        name in attributes for name in required
    ):
        return None
    details = lazy.dictionary(attributes["mhlo.backend_config"])
    fallback = "is_fallback" in details and lazy.boolean(details["is_fallback"])
    if (
        not fallback
        or "reduction_dim" not in details
        or len(lazy.array(attributes["called_computations"])) != 1
    ):
        return None
    # Operands are sorted together; each has an initial value, which pads inputs that are too short.
    count = len(operation.results)
    ranked = len(operation.operands) == 2 * count and lazy.tensor_of(operation.operands[0]).has_static_shape
    dimension: int = lazy.integer(details["reduction_dim"])
    return dimension if ranked and 0 <= dimension < lazy.tensor_of(operation.operands[0]).rank else None


def _sort(operation: Op, dimension: int) -> None:
    """Replace the call by a stable sort with its comparator, cut to the first elements."""
    native = mlir.native_ir()
    values = list(operation.operands)[: len(operation.results)]
    i64 = native.IntegerType.get_signless(64)
    sort = native.Operation.create(
        "stablehlo.sort",
        results=[value.type for value in values],
        operands=values,
        attributes={
            "dimension": native.IntegerAttr.get(i64, dimension),
            "is_stable": native.BoolAttr.get(True),
        },
        regions=1,
        ip=native.InsertionPoint(operation),
    )
    scalars = [
        native.RankedTensorType.get([], lazy.tensor_of(value).element_type)
        for value in values
        for _ in range(2)
    ]
    block = sort.regions[0].blocks.append(*scalars, arg_locs=[native.Location.unknown()] * len(scalars))
    with native.InsertionPoint(block):
        boolean = native.RankedTensorType.get([], native.IntegerType.get_signless(1))
        callee = lazy.string(lazy.array(operation.attributes["called_computations"])[0])
        called = mlir.native_func().CallOp([boolean], callee, list(block.arguments))
        native.Operation.create("stablehlo.return", operands=list(called.results))
    for old, ordered in zip(operation.results, sort.results, strict=True):
        old.replace_all_uses_with(_slice_to(operation, ordered, lazy.tensor_of(old)))
    operation.erase()


def _slice_to(operation: Op, value: Value, type: RankedTensorType) -> Value:
    """Return the leading slice of ``value`` that has the type ``type``."""
    native = mlir.native_ir()
    rank = type.rank
    ranges = {
        "start_indices": [0] * rank,
        "limit_indices": list(type.shape),
        "strides": [1] * rank,
    }
    attributes = {name: native.DenseI64ArrayAttr.get(indices) for name, indices in ranges.items()}
    slice_operation = native.Operation.create(
        "stablehlo.slice",
        results=[type],
        operands=[value],
        attributes=attributes,
        ip=native.InsertionPoint(operation),
    )
    return slice_operation.results[0]
