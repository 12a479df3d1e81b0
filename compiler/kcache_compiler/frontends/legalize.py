"""What is legalized before the node graph: CHLO without a node of its own, and named linalg ops."""

from __future__ import annotations

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.stablehlo.approx_top_k import exact_top_k
from kcache_compiler.frontends.stablehlo.dynamic_custom_calls import define_open_calls
from kcache_compiler.frontends.stablehlo.dynamic_scan import define_open_scans
from kcache_compiler.frontends.stablehlo.expectations import drop_expectations
from kcache_compiler.frontends.stablehlo.ragged_dot import define_ragged
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: CHLO ops that code generation computes itself, more accurately than their legalization would.
NATIVE_CHLO = frozenset(
    [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "bessel_i1e",
        "conj",
        "cosh",
        "digamma",
        "erf",
        "erf_inv",
        "erfc",
        "is_inf",
        "is_neg_inf",
        "is_pos_inf",
        "lgamma",
        "mulhi",
        "next_after",
        "polygamma",
        "sinh",
        "square",
        "tan",
        "zeta",
    ]
)

#: CHLO ops that the importer itself turns into nodes and views when their shapes are static.
_IMPORTED_CHLO = frozenset(
    {"chlo.constant", "chlo.constant_like"}
    | {
        f"chlo.broadcast_{op}"
        for op in [
            "add",
            "and",
            "atan2",
            "compare",
            "complex",
            "divide",
            "maximum",
            "minimum",
            "multiply",
            "next_after",
            "or",
            "polygamma",
            "power",
            "remainder",
            "select",
            "shift_left",
            "shift_right_arithmetic",
            "shift_right_logical",
            "subtract",
            "xor",
            "zeta",
        ]
    }
)

#: CHLO as StableHLO: what CHLO ops are defined as.
LEGALIZE = "builtin.module(func.func(chlo-legalize-to-stablehlo))"
_GENERALIZE = "builtin.module(func.func(convert-elementwise-to-linalg,linalg-generalize-named-ops))"


def legalize_chlo(module: Native, names: set[str]) -> None:
    """Legalize in place the CHLO ops that have neither a node nor an importer.

    Native ones are set aside as custom calls ``chlo.<op>`` meanwhile, which the importer reads
    as the op. ``names`` are the operation names that occur in the module.
    """
    native = {f"chlo.{op}" for op in NATIVE_CHLO}
    rest = {n for n in names if n.startswith("chlo.")} - native - _IMPORTED_CHLO
    if "stablehlo.custom_call" in names:
        drop_expectations(_all(module, {"stablehlo.custom_call"}))
    topk = "stablehlo.custom_call" in names and _restore_topk(module)
    if "stablehlo.custom_call" in names:
        exact_top_k(module, _all(module, {"stablehlo.custom_call"}))
        define_open_calls(module, _all(module, {"stablehlo.custom_call"}))
    if not rest and not topk:
        return
    _set_aside(module, native | {f"chlo.broadcast_{op}" for op in NATIVE_CHLO})
    if "chlo.scan" in names:
        _scan_nothing(module)
        define_open_scans(module, _all(module, {"chlo.scan"}))
    if "chlo.ragged_dot" in names:
        define_ragged(module, _all(module, {"chlo.ragged_dot"}))
    try:
        mlir.run_passes(module, LEGALIZE)
    except mlir.mlir_error() as error:
        raise InvalidProgram(
            f"the CHLO ops {', '.join(sorted(rest))} do not legalize: {str(error)[:2000]}"
        ) from None


def generalize_linalg(module: Native) -> None:
    """Turn named linalg ops, and scalar ops on whole tensors, into generics, in place."""
    mlir.run_passes(module, _GENERALIZE)


def _set_aside(module: Native, names: set[str]) -> None:
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for operation in _all(module, names):
            attributes = {"call_target_name": native.StringAttr.get(operation.name)}
            inherent = {n: operation.attributes[n] for n in operation.attributes if "." not in n}
            if inherent:
                attributes["mhlo.attributes"] = native.DictAttr.get(inherent)
            _replace(native, operation, "stablehlo.custom_call", attributes)


def _restore_topk(module: Native) -> bool:
    """Turn ``custom_call @mhlo.topk`` (largest first) back into ``chlo.top_k``; say whether any was."""
    native = mlir.native_ir()
    restored = False
    with module.context, native.Location.unknown():
        for operation in _all(module, {"stablehlo.custom_call"}):
            attributes = operation.attributes
            if attributes["call_target_name"].value != "mhlo.topk" or "mhlo.attributes" not in attributes:
                continue
            details = attributes["mhlo.attributes"]
            if "largest" in details and not details["largest"].value:
                continue
            _replace(native, operation, "chlo.top_k", {"k": details["k"]})
            restored = True
    return restored


def _scan_nothing(module: Native) -> None:
    """Scans along an axis of no elements give nothing, and what they carry; their legalization slices one."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for operation in _all(module, {"chlo.scan"}):
            inputs, inits = list(operation.attributes["operandSegmentSizes"])
            axis = native.IntegerAttr(operation.attributes["dimension"]).value
            if not inputs or operation.operands[0].type.shape[axis] != 0:
                continue
            results = list(operation.results)
            for result in results[: len(results) - inits]:
                # As text: the bindings have no attribute of no complex numbers.
                made = native.Operation.parse(f"%0 = stablehlo.constant dense<> : {result.type}")
                native.InsertionPoint(operation).insert(made)
                result.replace_all_uses_with(made.operation.results[0])
            for result, init in zip(results[-inits:], list(operation.operands)[inputs:], strict=True):
                result.replace_all_uses_with(init)
            operation.erase()


def _all(module: Native, names: set[str]) -> list[Native]:
    native = mlir.native_ir()
    found: list[Native] = []

    def visit(operation: Native) -> Native:
        if operation.name in names:
            found.append(operation)
        return native.WalkResult.ADVANCE

    module.operation.walk(visit, native.WalkOrder.PRE_ORDER)
    return found


def _replace(native: Native, operation: Native, name: str, attributes: dict[str, Native]) -> None:
    new = native.Operation.create(
        name,
        results=[r.type for r in operation.results],
        operands=list(operation.operands),
        attributes=attributes,
        loc=operation.location,
        ip=native.InsertionPoint(operation),
    )
    for old_result, new_result in zip(operation.results, new.results, strict=True):
        old_result.replace_all_uses_with(new_result)
    operation.erase()
