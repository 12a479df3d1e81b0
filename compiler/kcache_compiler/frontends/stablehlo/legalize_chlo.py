"""Rewrites CHLO ops that have no node in a spec as StableHLO; those of ``NATIVE_CHLO`` have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.stablehlo.custom_calls import (
    erase_expectations,
    lower_approx_top_k,
    restore_top_k,
)
from kcache_compiler.frontends.stablehlo.dynamic_custom_calls import lower_dynamic_calls
from kcache_compiler.frontends.stablehlo.dynamic_scan import lower_dynamic_scans
from kcache_compiler.frontends.stablehlo.function_text import replace_operation
from kcache_compiler.frontends.stablehlo.ragged_dot import lower_ragged_dots
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import Attribute, WalkResult

    from kcache_compiler.mlir.types import Module, Op, Type


#: CHLO ops that code generation lowers directly, more accurately than their legalization to StableHLO.
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

#: CHLO ops that the importer turns into nodes and views if their shapes are static.
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

#: Pass pipeline that replaces CHLO ops by their definition in StableHLO.
LEGALIZE_CHLO_PIPELINE = "builtin.module(func.func(chlo-legalize-to-stablehlo))"


def legalize_chlo(module: Module, names: set[str]) -> None:
    """Legalize in place the CHLO ops that have neither a node nor an importer.

    Ops of ``NATIVE_CHLO`` become custom calls ``chlo.<op>``, which the importer reads as the op. ``names``
    are the names of the operations in the module. Raises ``InvalidProgram`` if an op does not legalize.
    """
    native = {f"chlo.{op}" for op in NATIVE_CHLO}
    unsupported = {n for n in names if n.startswith("chlo.")} - native - _IMPORTED_CHLO
    custom_call = {"stablehlo.custom_call"}
    if "stablehlo.custom_call" in names:
        erase_expectations(_operations_named(module, custom_call))
    top_k = "stablehlo.custom_call" in names and restore_top_k(module, _operations_named(module, custom_call))
    if "stablehlo.custom_call" in names:
        lower_approx_top_k(module, _operations_named(module, custom_call))
        lower_dynamic_calls(module, _operations_named(module, custom_call))
    if not unsupported and not top_k:
        return
    _protect(module, native | {f"chlo.broadcast_{op}" for op in NATIVE_CHLO})
    if "chlo.scan" in names:
        _replace_empty_scans(module)
        lower_dynamic_scans(module, _operations_named(module, {"chlo.scan"}))
    if "chlo.ragged_dot" in names:
        lower_ragged_dots(module, _operations_named(module, {"chlo.ragged_dot"}))
    try:
        mlir.run_passes(module, LEGALIZE_CHLO_PIPELINE)
    except mlir.mlir_error() as error:
        raise InvalidProgram(
            f"the CHLO ops {', '.join(sorted(unsupported))} do not legalize: {str(error)[:2000]}"
        ) from None


def _protect(module: Module, names: set[str]) -> None:
    """Replace operations by custom calls of the same name, which the pass pipeline leaves alone."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for operation in _operations_named(module, names):
            attributes: dict[str, Attribute] = {"call_target_name": native.StringAttr.get(operation.name)}
            inherent = {n: operation.attributes[n] for n in operation.attributes if "." not in n}
            if inherent:
                attributes["mhlo.attributes"] = native.DictAttr.get(inherent)
            replace_operation(operation, "stablehlo.custom_call", attributes)


def _replace_empty_scans(module: Module) -> None:
    """Replace scans along an axis of size 0: the legalization would slice an element that does not exist."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for operation in _operations_named(module, {"chlo.scan"}):
            inputs, inits = list(lazy.integers(operation.attributes["operandSegmentSizes"]))
            axis = native.IntegerAttr(operation.attributes["dimension"]).value
            if not inputs or lazy.tensor_of(operation.operands[0]).shape[axis] != 0:
                continue
            results = list(operation.results)
            for result in results[: len(results) - inits]:
                # Parsed, because the bindings cannot create an empty attribute of complex elements.
                empty = native.Operation.parse(f"%0 = stablehlo.constant dense<> : {result.type}")
                native.InsertionPoint(operation).insert(empty)
                result.replace_all_uses_with(empty.operation.results[0])
            for result, init in zip(results[-inits:], list(operation.operands)[inputs:], strict=True):
                result.replace_all_uses_with(init)
            operation.erase()


def _operations_named(module: Module, names: set[str]) -> list[Op]:
    """Return the operations with one of ``names``, in pre-order."""
    native = mlir.native_ir()
    matches: list[Op] = []

    def visit(operation: Op) -> WalkResult:
        if operation.name in names:
            matches.append(operation)
        return native.WalkResult.ADVANCE

    module.operation.walk(visit, native.WalkOrder.PRE_ORDER)
    return matches


def chlo_definition(name: str, types: Sequence[Type], result: Type) -> Module | None:
    """Return a module whose only function is the StableHLO that ``name`` (``chlo.erf``) legalizes to.

    ``types`` and ``result`` are native types of one context. None if the operation does not accept them.
    """
    arguments = ", ".join(f"%a{i}: {type}" for i, type in enumerate(types))
    operands = ", ".join(f"%a{i}" for i in range(len(types)))
    signature = f"({', '.join(map(str, types))}) -> {result}"
    text = (
        f"func.func @definition({arguments}) -> {result} {{\n"
        f'  %r = "{name}"({operands}) : {signature}\n'
        f"  return %r : {result}\n}}"
    )
    try:
        module = mlir.parse_module(text, result.context)
        mlir.run_passes(module, LEGALIZE_CHLO_PIPELINE)
    except mlir.mlir_error():
        return None
    return module
