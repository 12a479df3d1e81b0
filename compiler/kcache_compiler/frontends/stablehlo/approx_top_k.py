"""JAX's approximate top k where it asks for the exact one: sorted, and cut off."""

from __future__ import annotations

from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native


def exact_top_k(module: Native, calls: list[Native]) -> None:
    """Turn ``custom_call @ApproxTopK`` into a sort and a slice, where it says that it is the fallback."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for operation in calls:
            dimension = _dimension(operation)
            if dimension is not None:
                _sorted(native, operation, dimension)


def _dimension(operation: Native) -> int | None:
    """Along which axis, None for another call."""
    attributes = operation.attributes
    needed = ("mhlo.backend_config", "called_computations")
    if attributes["call_target_name"].value != "ApproxTopK" or not all(one in attributes for one in needed):
        return None
    details = attributes["mhlo.backend_config"]
    fallback = "is_fallback" in details and details["is_fallback"].value
    if not fallback or "reduction_dim" not in details or len(attributes["called_computations"]) != 1:
        return None
    # Operands are sorted together, each with the number that fills it up where there are too few.
    count = len(operation.results)
    ranked = len(operation.operands) == 2 * count and operation.operands[0].type.has_static_shape
    dimension: int = details["reduction_dim"].value
    return dimension if ranked and 0 <= dimension < operation.operands[0].type.rank else None


def _sorted(native: Native, operation: Native, dimension: int) -> None:
    values = list(operation.operands)[: len(operation.results)]
    i64 = native.IntegerType.get_signless(64)
    made = native.Operation.create(
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
    scalars = [native.RankedTensorType.get([], value.type.element_type) for value in values for _ in range(2)]
    block = made.regions[0].blocks.append(*scalars, arg_locs=[native.Location.unknown()] * len(scalars))
    with native.InsertionPoint(block):
        truth = native.RankedTensorType.get([], native.IntegerType.get_signless(1))
        callee = {"callee": operation.attributes["called_computations"][0]}
        called = native.Operation.create(
            "func.call", results=[truth], operands=list(block.arguments), attributes=callee
        )
        native.Operation.create("stablehlo.return", operands=list(called.results))
    for old, whole in zip(operation.results, made.results, strict=True):
        old.replace_all_uses_with(_first(native, operation, whole, old.type))
    operation.erase()


def _first(native: Native, operation: Native, whole: Native, kind: Native) -> Native:
    """As much of ``whole`` as the result has."""
    rank = kind.rank
    ranges = {
        "start_indices": [0] * rank,
        "limit_indices": list(kind.shape),
        "strides": [1] * rank,
    }
    attributes = {name: native.DenseI64ArrayAttr.get(numbers) for name, numbers in ranges.items()}
    cut = native.Operation.create(
        "stablehlo.slice",
        results=[kind],
        operands=[whole],
        attributes=attributes,
        ip=native.InsertionPoint(operation),
    )
    return cut.results[0]
